set(lesson_sources ${folder}/solution.cpp)  # the page trains with our step
