# A program, not a suite: it starts processes and kills them. `storm --help` tells what else it can do.
file(GLOB storm_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/*.cc")
add_executable(storm ${storm_sources})
hierlock_own(storm)
target_link_libraries(storm PRIVATE hierlock::hierlock Threads::Threads)
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
