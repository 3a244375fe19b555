set(lesson_libraries norma::norma)
set(lesson_sources ${folder}/my_norm.cpp ${folder}/solution.cpp)  # the page shows what check-norm says of our answers
set(lesson_test_sources ${folder}/my_norm.cpp)

# my_norm.so is a plug-in with the student's norm, my_norm_solution.so one with ours.
foreach(kind exercise solution)
  set(target lesson_m2_plugin_${kind})
  add_library(${target} MODULE ${folder}/plugin.cpp ${folder}/my_norm.cpp ${folder}/${kind}.cpp)
  target_compile_options(${target} PRIVATE -Wno-unused-parameter)
  target_link_libraries(${target} PRIVATE norma::plugin)
  set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME my_norm LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
endforeach()
set_target_properties(lesson_m2_plugin_solution PROPERTIES OUTPUT_NAME my_norm_solution)
