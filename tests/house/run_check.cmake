# run_check(TREE CODE TEXT): SCRIPT, run on the tree WORK/TREE, ends with this exit code and says this, whatever the
# line breaks.
function(run_check tree expected_code expected_text)
  execute_process(COMMAND ${CMAKE_COMMAND} -DROOT=${WORK}/${tree} -P ${SCRIPT}
                  RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE err)
  string(REGEX REPLACE "[ \n]+" " " text "${out}${err}")
  if(NOT code EQUAL expected_code)
    message(SEND_ERROR "${tree}: expected exit code ${expected_code}, got ${code}: ${text}")
  endif()
  string(FIND "${text}" "${expected_text}" at)
  if(at EQUAL -1)
    message(SEND_ERROR "${tree}: expected the text \"${expected_text}\", got: ${text}")
  endif()
endfunction()
