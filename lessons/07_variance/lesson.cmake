# The milestone: my_norm.so is a plug-in with a norm made of the student's answers, my_norm_solution.so one made of ours.
foreach(kind exercise solution)
  set(target lesson_07_norm_${kind})
  add_library(${target} MODULE ${folder}/my_norm.cpp ${folder}/${kind}.cpp 06_norm_backward/${kind}.cpp)
  target_compile_options(${target} PRIVATE -Wno-unused-parameter)
  target_link_libraries(${target} PRIVATE norma::plugin)
  set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME my_norm LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
endforeach()
set_target_properties(lesson_07_norm_solution PROPERTIES OUTPUT_NAME my_norm_solution)
find_program(NORMA_COMMAND norma HINTS ${norma_DIR}/../../../bin)  # of an installed Norma
if(TARGET norma OR NORMA_COMMAND)
  if(TARGET norma)
    set(command $<TARGET_FILE:norma>)
    add_dependencies(lesson_07_norm_solution norma)
  else()
    set(command ${NORMA_COMMAND})
  endif()
  add_test(NAME "lessons: the norm of lesson 7 passes check-norm"
           COMMAND ${command} check-norm --norms mine --quick --quiet --plugin $<TARGET_FILE:lesson_07_norm_solution>)
  set_tests_properties("lessons: the norm of lesson 7 passes check-norm" PROPERTIES LABELS lessons
                       PASS_REGULAR_EXPRESSION "nothing is wrong")
endif()
