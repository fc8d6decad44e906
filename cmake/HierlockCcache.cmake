# Compiles through ccache where it is installed, unless the user chose a launcher.
#
# Without the sloppiness ccache refuses every file that uses a precompiled header ("Precompiled headers" in its manual);
# the tests all do. gcc needs -fpch-preprocess for the same reason. With the folder of the sources as its base, a second
# checkout finds what the first one compiled; __FILE__ is a relative path then.
find_program(HIERLOCK_CCACHE ccache)
mark_as_advanced(HIERLOCK_CCACHE)
if(HIERLOCK_CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env
      "CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime"
      "CCACHE_BASEDIR=${CMAKE_CURRENT_SOURCE_DIR}" CCACHE_NOHASHDIR=1 "${HIERLOCK_CCACHE}")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
  endif()
endif()
