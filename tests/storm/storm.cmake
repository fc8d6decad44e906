# A program, not a suite: it starts processes on a store and kills them. `storm --help` tells what else it can do.
file(GLOB storm_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/*.cc")
# The library once more, built so that workers can stop themselves at any of the engine's shared stores (cell.h).
file(GLOB library_sources CONFIGURE_DEPENDS "${hierlock_SOURCE_DIR}/src/plan/*.cc" "${hierlock_SOURCE_DIR}/src/threads/*.cc"
  "${hierlock_SOURCE_DIR}/src/engine/*.cc"
  "${hierlock_SOURCE_DIR}/src/backends/embedded/*.cc" "${hierlock_SOURCE_DIR}/src/locker/*.cc")
list(FILTER library_sources EXCLUDE REGEX "_test\\.cc$")
add_executable(storm ${storm_sources} ${library_sources})
hierlock_own(storm)
target_compile_definitions(storm PRIVATE HIERLOCK_STORE_HOOK)
foreach(room plan threads engine embedded locker)
  target_include_directories(storm PRIVATE "${hierlock_BINARY_DIR}/rooms/${room}")
endforeach()
target_include_directories(storm PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
target_link_libraries(storm PRIVATE Threads::Threads)
if(TARGET hierlock::mysql)
  # Its own sources come first: of the library it gets only what is not among them, the remote room.
  target_link_libraries(storm PRIVATE hierlock::mysql)
  target_compile_definitions(storm PRIVATE HIERLOCK_WITH_MYSQL)
endif()
set_target_properties(storm PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${hierlock_BINARY_DIR}/tests")
if(TARGET hierlock_tests)
  add_dependencies(hierlock_tests storm)
endif()

add_test(NAME storm COMMAND storm)
set(storms storm)
if(processes_die)
  # A witness that notices nothing is worth nothing.
  add_test(NAME storm.faults COMMAND storm --self-test)
  list(APPEND storms storm.faults)
endif()
set_tests_properties(${storms} PROPERTIES LABELS storm TIMEOUT 900 RUN_SERIAL TRUE)
# The same storm and the same witness on servers. Sanitizers see there what they see above.
if(TARGET hierlock::mysql AND NOT CMAKE_CXX_FLAGS_DEBUG MATCHES "-fsanitize")
  foreach(server mysql mariadb)
    add_test(NAME storm.${server} COMMAND storm --on ${server})
    set_tests_properties(storm.${server} PROPERTIES LABELS storm TIMEOUT 900 SKIP_RETURN_CODE 77)
    hierlock_waits_for(storm.${server} ${server})
  endforeach()
endif()
