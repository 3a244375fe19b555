set(lesson_libraries norma::norma)
set(lesson_sources ${folder}/layer.cpp ${folder}/solution.cpp)
set(lesson_test_sources ${folder}/layer.cpp)

# my_design.so is a plug-in with the student's design, my_design_solution.so one with ours.
foreach(kind exercise solution)
  set(target lesson_m3_plugin_${kind})
  add_library(${target} MODULE ${folder}/plugin.cpp ${folder}/layer.cpp ${folder}/${kind}.cpp)
  target_compile_options(${target} PRIVATE -Wno-unused-parameter)
  target_link_libraries(${target} PRIVATE norma::plugin)
  set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME my_design LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
endforeach()
set_target_properties(lesson_m3_plugin_solution PROPERTIES OUTPUT_NAME my_design_solution)
