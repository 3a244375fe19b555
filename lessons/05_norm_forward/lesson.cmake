set(lesson_libraries norma::data)  # images, as in milestone 1
set(lesson_sources ${folder}/depth.cpp)
