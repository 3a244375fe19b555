set(lesson_libraries norma::data)
set(lesson_sources ${folder}/solution.cpp)  # the page shows what a tape without gaps does
