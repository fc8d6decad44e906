# Rooms: one target per source folder, so that a forbidden include does not build.
#
#   hierlock_room(<name>
#     [PATH <folder>]           where it is; default: <name>, beside the CMakeLists.txt that calls this
#     [DEPENDS <room>...]       the rooms whose headers it may include; they must be declared before it
#     [PRIVATE_LIBS <lib>...]   libraries it uses and does not show, such as a store's client
#     [SOURCES <file>...]       default: every *.cc of the folder that is not a test
#     [COMPONENT]               not part of the library `hierlock`: a library of its own, hierlock::<name>
#     [PART]                    not part of the library, but of every tool, component and part that DEPENDS on it; may be
#                               a COMPONENT besides
#     [TOOL <executable>])      not part of the library: a program, whose main() is in the folder's main.cc
#
# makes
#   hierlock_<name>             the room's object files; all rooms but tools, components and parts together are the
#                               library `hierlock`
#   <name>_test                 its unit tests, if the folder has *_test.cc (one program, one ctest: unit.<name>;
#                               tests_apart_in_<name>, a filter, makes a second one: unit.<name>.apart)
#   hierlock_tool_<name>        for a TOOL: <executable>, at the top of the build folder
#
# A header of a room is included as "<name>/header.h", also from the room itself. That works by a folder
# <build>/rooms/<name>/ whose only entry is a link `<name>` to the sources: a room gets that folder of its own and of the
# rooms it DEPENDS on, of no others, and not of those they depend on. So what a room shows in its headers it must be able to
# show: locker depends on embedded, embedded on engine, and embedded's headers say nothing of the engine's.
#
#   hierlock_suite(<name> [PATH <folder>] [PARTS <part> <filter> ...])
#                                                     tests against the public headers only: program <name>, ctest <name>,
#                                                     or a ctest <name>.<part> for the cases of each gtest filter
#   hierlock_waits_for(<ctest> <server>...)           it shares the machine with others, but not these servers
#   hierlock_uses_soci(<target>)                      it includes SOCI's headers
#   hierlock_own(<target>)                            warnings and the like, for the project's own targets only
#   hierlock_own_test(<target>)                       the same, for tests

# Tests are optimised less than the library, which they call: two thirds of all that ./test compiles are tests.
function(hierlock_own_test target)
  hierlock_own(${target})
  if(CMAKE_CXX_FLAGS_DEBUG MATCHES "-fsanitize")
    target_compile_options(${target} PRIVATE -O0)
  elseif(CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
    target_compile_options(${target} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1>)
  endif()
endfunction()

function(hierlock_uses_soci target)
  find_package(SOCI QUIET REQUIRED)
  target_link_libraries(${target} PRIVATE ${SOCI_LIBRARIES})
  target_include_directories(${target} SYSTEM PRIVATE ${SOCI_INCLUDE_DIRS})
  if(CMAKE_CXX_FLAGS_DEBUG MATCHES "-fsanitize=[a-z,]*undefined")
    target_compile_options(${target} PRIVATE -fno-sanitize=vptr)  # SOCI casts to classes that objects are not yet
  endif()
endfunction()

function(hierlock_own target)
  if(CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
    target_compile_options(${target} PRIVATE
      -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual
      -Wold-style-cast -Wcast-align -Wformat=2 -Wimplicit-fallthrough -Wextra-semi
      # Designated initialisers that leave members at their defaults are how options are written.
      -Wno-missing-field-initializers)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      target_compile_options(${target} PRIVATE -Wduplicated-cond -Wlogical-op)
      if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
        # gcc 12 warns of std::string's own operator+ once it is inlined (gcc bug 105329, and others of its kind).
        target_compile_options(${target} PRIVATE -Wno-restrict -Wno-array-bounds -Wno-stringop-overflow)
      endif()
    endif()
    if(HIERLOCK_WARNINGS_AS_ERRORS)
      target_compile_options(${target} PRIVATE -Werror)
    endif()
  endif()
  target_include_directories(${target} PRIVATE
    "$<BUILD_INTERFACE:${hierlock_SOURCE_DIR}/include>" "$<BUILD_INTERFACE:${hierlock_BINARY_DIR}/include>")
  set_target_properties(${target} PROPERTIES CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF)
endfunction()

# With HIERLOCK_PRECOMPILE: the headers of the standard library, compiled once for all rooms. A first build is faster so
# (./quickstart). It is off otherwise, because a room then compiles even if it forgets an include.
function(hierlock_precompile target)
  if(NOT HIERLOCK_PRECOMPILE)
    return()
  endif()
  if(NOT TARGET hierlock_pch)
    file(CONFIGURE OUTPUT "${hierlock_BINARY_DIR}/pch.cc" CONTENT "")
    add_library(hierlock_pch OBJECT "${hierlock_BINARY_DIR}/pch.cc")
    hierlock_own(hierlock_pch)
    target_precompile_headers(hierlock_pch PRIVATE
      <algorithm> <array> <atomic> <charconv> <chrono> <condition_variable> <cstdint> <cstring> <functional> <map> <memory>
      <mutex> <optional> <span> <stop_token> <string> <string_view> <thread> <unordered_map> <utility> <vector>)
  endif()
  target_precompile_headers(${target} REUSE_FROM hierlock_pch)
endfunction()

function(hierlock_room name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "COMPONENT;PART" "PATH;TOOL" "DEPENDS;PRIVATE_LIBS;SOURCES")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "hierlock_room(${name}): unknown arguments: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT arg_PATH)
    set(arg_PATH ${name})
  endif()
  get_filename_component(folder "${arg_PATH}" ABSOLUTE)
  if(NOT IS_DIRECTORY "${folder}")
    message(FATAL_ERROR "hierlock_room(${name}): there is no folder ${folder}; give its PATH")
  endif()

  file(GLOB found CONFIGURE_DEPENDS "${folder}/*.cc")
  set(tests ${found})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  if(NOT arg_SOURCES)
    set(arg_SOURCES ${found})
    list(FILTER arg_SOURCES EXCLUDE REGEX "(_test|/main)\\.cc$")
  endif()

  set(view "${hierlock_BINARY_DIR}/rooms/${name}")
  file(MAKE_DIRECTORY "${view}")
  file(CREATE_LINK "${folder}" "${view}/${name}" SYMBOLIC)

  # What it may include, and what it must be linked with: the rooms it depends on, and for the latter also theirs.
  set(views "${view}")
  set(needs ${name})
  set(parts "")
  foreach(room IN LISTS arg_DEPENDS)
    if(NOT TARGET hierlock_${room})
      message(FATAL_ERROR "hierlock_room(${name}): DEPENDS on ${room}, which is not declared (yet)")
    endif()
    list(APPEND views "${hierlock_BINARY_DIR}/rooms/${room}")
    get_property(theirs GLOBAL PROPERTY HIERLOCK_NEEDS_${room})
    list(APPEND needs ${theirs})
    get_property(is_part GLOBAL PROPERTY HIERLOCK_IS_PART_${room})
    if(is_part AND NOT arg_TOOL AND NOT arg_COMPONENT AND NOT arg_PART)
      message(FATAL_ERROR "hierlock_room(${name}): only tools, components and parts may depend on ${room}")
    endif()
  endforeach()
  list(REMOVE_DUPLICATES needs)
  foreach(room IN LISTS needs)
    get_property(is_part GLOBAL PROPERTY HIERLOCK_IS_PART_${room})
    if(is_part AND NOT room STREQUAL name)
      list(APPEND parts $<TARGET_OBJECTS:hierlock_${room}>)
    endif()
  endforeach()
  set_property(GLOBAL PROPERTY HIERLOCK_NEEDS_${name} ${needs})
  set_property(GLOBAL APPEND PROPERTY HIERLOCK_ROOMS ${name})

  # A room of headers only is a room as well.
  if(arg_SOURCES)
    add_library(hierlock_${name} OBJECT ${arg_SOURCES})
    hierlock_own(hierlock_${name})
    target_include_directories(hierlock_${name} PRIVATE ${views})
    target_link_libraries(hierlock_${name} PRIVATE Threads::Threads ${arg_PRIVATE_LIBS})
    hierlock_precompile(hierlock_${name})
    if(NOT arg_TOOL AND CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
      # As CMake's Release does. A pair of acquire and release on memory: took 71 ns so, and 77 with -O2.
      target_compile_options(hierlock_${name} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O3>)
    endif()
    if(BUILD_SHARED_LIBS AND NOT arg_TOOL)
      set_target_properties(hierlock_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    endif()
  else()
    add_library(hierlock_${name} INTERFACE)
  endif()
  if(arg_TOOL)
    set(objects hierlock_${name})
    target_sources(hierlock_${name} INTERFACE ${parts})
    set(libraries hierlock ${arg_PRIVATE_LIBS})
    add_executable(hierlock_tool_${name} "${folder}/main.cc")
    hierlock_own(hierlock_tool_${name})
    target_include_directories(hierlock_tool_${name} PRIVATE ${views})
    target_link_libraries(hierlock_tool_${name} PRIVATE ${objects} ${libraries})
    set_target_properties(hierlock_tool_${name} PROPERTIES
      OUTPUT_NAME ${arg_TOOL} RUNTIME_OUTPUT_DIRECTORY "${hierlock_BINARY_DIR}")
  else()
    list(TRANSFORM needs PREPEND hierlock_ OUTPUT_VARIABLE objects)
    set(libraries ${arg_PRIVATE_LIBS})
    if(arg_COMPONENT)
      hierlock_component(${name} "${arg_PRIVATE_LIBS}" ${parts})
      set(objects hierlock_component_${name})  # a store registers itself with the library
    endif()
    if(arg_PART)
      set_property(GLOBAL PROPERTY HIERLOCK_IS_PART_${name} ON)
    endif()
    if(NOT arg_COMPONENT AND NOT arg_PART)
      set_property(GLOBAL APPEND PROPERTY HIERLOCK_LIBRARY_ROOMS ${name})
      set_property(GLOBAL APPEND PROPERTY HIERLOCK_LIBRARY_LIBS ${arg_PRIVATE_LIBS})
    endif()
  endif()

  if(HIERLOCK_BUILD_TESTS AND tests)
    # With the objects it needs, not the whole library: a change in the engine does not relink the tests of the plan.
    hierlock_test_program(${name}_test ${tests})
    if(DEFINED tests_apart_in_${name})
      hierlock_gtest(unit.${name} ${name}_test unit "--gtest_filter=-${tests_apart_in_${name}}")
      hierlock_gtest(unit.${name}.apart ${name}_test unit "--gtest_filter=${tests_apart_in_${name}}")
    else()
      hierlock_gtest(unit.${name} ${name}_test unit)
    endif()
    target_include_directories(${name}_test PRIVATE ${views})
    target_link_libraries(${name}_test PRIVATE ${objects} ${libraries})
  endif()
endfunction()

# A store that brings a client library: hierlock::<name>, installed as a component of its own. See cmake/HierlockInstall.cmake.
function(hierlock_component name libraries)  # then the objects of its parts
  add_library(hierlock_component_${name} $<TARGET_OBJECTS:hierlock_${name}> ${ARGN})
  add_library(hierlock::${name} ALIAS hierlock_component_${name})
  target_link_libraries(hierlock_component_${name} PUBLIC hierlock PRIVATE ${libraries})
  set_target_properties(hierlock_component_${name} PROPERTIES
    LINKER_LANGUAGE CXX OUTPUT_NAME hierlock-${name} EXPORT_NAME ${name}
    VERSION ${hierlock_VERSION} SOVERSION ${hierlock_VERSION_MAJOR}.${hierlock_VERSION_MINOR})
  set_property(GLOBAL APPEND PROPERTY HIERLOCK_COMPONENTS ${name})
  set_property(GLOBAL PROPERTY HIERLOCK_COMPONENT_LIBS_${name} ${libraries})
endfunction()

# Text files as a source: hierlock_embed(<variable> <namespace> <file>...) makes a .cc that defines, of each file, a
# std::string_view named after it (`report.css`: report_css), and sets the variable to its path.
function(hierlock_embed variable space)
  set(out "${CMAKE_CURRENT_BINARY_DIR}/${variable}.cc")
  list(TRANSFORM ARGN PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/" OUTPUT_VARIABLE files)
  add_custom_command(OUTPUT "${out}" DEPENDS ${files} "${hierlock_SOURCE_DIR}/cmake/embed.cmake" VERBATIM
    COMMAND "${CMAKE_COMMAND}" "-DOUT=${out}" "-DSPACE=${space}" "-DFILES=${files}"
      -P "${hierlock_SOURCE_DIR}/cmake/embed.cmake")
  set(${variable} "${out}" PARENT_SCOPE)
endfunction()

# Suites measure waits against bounds, so they do not share the machine with another test, unless they mostly wait for
# servers: see hierlock_waits_for().
function(hierlock_suite name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "PATH" "PARTS")
  if(NOT arg_PATH)
    set(arg_PATH ${name})
  endif()
  get_filename_component(folder "${arg_PATH}" ABSOLUTE)
  file(GLOB sources CONFIGURE_DEPENDS "${folder}/*.cc")
  hierlock_test_program(${name} ${sources})
  target_include_directories(${name} PRIVATE "${folder}")
  target_link_libraries(${name} PRIVATE hierlock::hierlock)
  set(tests "")
  while(arg_PARTS)
    list(POP_FRONT arg_PARTS part filter)
    hierlock_gtest(${name}.${part} ${name} ${name} "--gtest_filter=${filter}")
    list(APPEND tests ${name}.${part})
  endwhile()
  if(NOT tests)
    hierlock_gtest(${name} ${name} ${name})
    set(tests ${name})
  endif()
  set_tests_properties(${tests} PROPERTIES RUN_SERIAL TRUE)
endfunction()

function(hierlock_waits_for test)
  set_tests_properties(${test} PROPERTIES RUN_SERIAL FALSE PROCESSORS 1 RESOURCE_LOCK "${ARGN}")
endfunction()

function(hierlock_test_program target)  # then its sources
  find_package(GTest REQUIRED)
  add_executable(${target} ${ARGN})
  hierlock_own_test(${target})
  target_link_libraries(${target} PRIVATE GTest::gtest_main Threads::Threads)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${hierlock_BINARY_DIR}/tests")
  if(NOT TARGET hierlock_test_pch)
    # Compiled once for all test programs, which therefore must be compiled with the same flags.
    file(CONFIGURE OUTPUT "${hierlock_BINARY_DIR}/test_pch.cc" CONTENT "")
    add_library(hierlock_test_pch OBJECT "${hierlock_BINARY_DIR}/test_pch.cc")
    hierlock_own_test(hierlock_test_pch)
    target_link_libraries(hierlock_test_pch PRIVATE GTest::gtest Threads::Threads)
    target_precompile_headers(hierlock_test_pch PRIVATE
      <gtest/gtest.h> <algorithm> <atomic> <chrono> <functional> <map> <memory> <mutex> <optional> <random> <set>
      <stop_token> <string> <string_view> <thread> <unordered_map> <vector>)
  endif()
  target_precompile_headers(${target} REUSE_FROM hierlock_test_pch)
  if(NOT TARGET hierlock_tests)
    add_custom_target(hierlock_tests)  # all test programs, without what only other tests need
  endif()
  add_dependencies(hierlock_tests ${target})
endfunction()

# One run of a gtest program as one ctest: a process per test case costs more than most cases do. The cases are counted
# from the XML that each run leaves in <build>/test-results/<ctest name>.xml. To ctest half a processor is one (see
# run_ctest() in tools/lib.sh): what computes takes two, what waits one.
function(hierlock_gtest test target label)  # then more arguments for the program
  add_test(NAME ${test} COMMAND ${target} --gtest_brief=1 ${ARGN})
  set_tests_properties(${test} PROPERTIES
    LABELS ${label} TIMEOUT 3600 PROCESSORS 2
    ENVIRONMENT "GTEST_OUTPUT=xml:${hierlock_BINARY_DIR}/test-results/${test}.xml")
endfunction()

# The library `hierlock`, of all rooms declared so far that are not tools.
function(hierlock_library)
  get_property(rooms GLOBAL PROPERTY HIERLOCK_LIBRARY_ROOMS)
  get_property(libs GLOBAL PROPERTY HIERLOCK_LIBRARY_LIBS)
  add_library(hierlock)
  add_library(hierlock::hierlock ALIAS hierlock)
  list(TRANSFORM rooms PREPEND hierlock_ OUTPUT_VARIABLE objects)
  foreach(object IN LISTS objects)
    get_target_property(kind ${object} TYPE)
    if(kind STREQUAL "OBJECT_LIBRARY")
      target_sources(hierlock PRIVATE $<TARGET_OBJECTS:${object}>)
    endif()
  endforeach()
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS "${hierlock_SOURCE_DIR}/include/*.h")
  target_sources(hierlock PUBLIC FILE_SET HEADERS
    BASE_DIRS "${hierlock_SOURCE_DIR}/include" "${hierlock_BINARY_DIR}/include"
    FILES ${headers} "${hierlock_BINARY_DIR}/include/hierlock/version.h")
  target_compile_features(hierlock PUBLIC cxx_std_20)
  target_link_libraries(hierlock PUBLIC Threads::Threads PRIVATE ${libs})
  set_target_properties(hierlock PROPERTIES
    LINKER_LANGUAGE CXX
    VERSION ${hierlock_VERSION}
    # Before 1.0 a minor version may change the ABI.
    SOVERSION ${hierlock_VERSION_MAJOR}.${hierlock_VERSION_MINOR}
    # `all_verify_interface_header_sets` compiles each public header alone.
    VERIFY_INTERFACE_HEADER_SETS ${HIERLOCK_BUILD_TESTS})
endfunction()
