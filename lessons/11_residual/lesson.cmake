set(lesson_sources ${folder}/solution.cpp)  # the page's networks are made of our blocks
