# cmake -DROOT=DIR -DPRESET=NAME -P no_tests_test.cmake: a test run that selects no test is a failure, not a success.
cmake_minimum_required(VERSION 3.25)

execute_process(COMMAND ${CTEST} --preset ${PRESET} -R "^no test has this name$"
                WORKING_DIRECTORY ${ROOT} RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE err)
if(code EQUAL 0 OR NOT err MATCHES "No tests were found")
  message(FATAL_ERROR "expected a failure that says \"No tests were found\", got exit code ${code}: ${out}${err}")
endif()
