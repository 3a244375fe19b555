set(lesson_libraries norma::norma)
# The page uses our answers, here and in milestone 2.
set(lesson_sources ${folder}/solution.cpp m2_check_norm/solution.cpp m2_check_norm/my_norm.cpp)
