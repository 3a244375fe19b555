set(lesson_libraries norma::nn hwy::hwy)

# The student's kernel, ours and Norma's beside a copy.
foreach(kind exercise solution)
  add_executable(lesson_08_speed_${kind} ${folder}/speed.cpp ${folder}/${kind}.cpp)
  lesson_options(lesson_08_speed_${kind} lesson_shared ${lesson_libraries})
endforeach()
