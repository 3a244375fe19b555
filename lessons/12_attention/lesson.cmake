set(lesson_sources ${folder}/solution.cpp)  # the page shows what our attention computes
