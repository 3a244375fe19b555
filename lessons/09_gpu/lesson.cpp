// Lesson 9: kernels for a GPU, on a GPU that is not there.
#include <norma/norma.h>

#include <fmt/format.h>

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "launches.h"
#include "picture.h"

using namespace norma;  // NOLINT: a lesson reads better without prefixes

namespace {

/// A tensor in the memory of the GPU.
Tensor on_gpu(const std::vector<float>& numbers) {
  return norma::to(from_vector(numbers, {static_cast<int64_t>(numbers.size())}), kCudaEmulated);
}

void print(const std::string& name, const std::vector<float>& numbers) {
  std::string text;
  for (const float number : numbers) {
    text += fmt::format(" {:g}", number);
  }
  fmt::print("{}:{}\n", name, text);
}

/// What a launch says that fails.
template <class F>
void print_fault(const std::string& name, F&& f) {
  try {
    f();
    fmt::print("{}: no fault\n", name);
  } catch (const std::exception& error) {
    fmt::print("{}:\n  {}\n", name, error.what());
  }
}

/// The sums of the first 8 lanes after each step, with arrows from the lanes that each adds.
void draw_butterfly(const std::vector<float>& x, const std::vector<float>& steps, std::string_view folder) {
  lessons::Picture picture(250, "A sum by shuffles", "In each step a lane adds the value of another lane.");
  for (size_t step = 0; step < 4; ++step) {
    const double y = 34 + 66 * static_cast<double>(step);
    for (size_t lane = 0; lane < 8; ++lane) {
      const double left = 6 + 44 * static_cast<double>(lane);
      const float value = step == 0 ? x[lane] : steps[(step - 1) * 32 + lane];
      picture.box(left, y - 14, 36, 24, lessons::Color::one, step == 3, fmt::format("{:g}", value));
      if (step > 0) {
        const double from = 6 + 44 * static_cast<double>(lane ^ (1U << (step - 1)));
        picture.arrow(from + 18, y - 56, left + 18, y - 15, lessons::Color::two);
      }
      if (step == 0) {
        picture.text(left + 18, 14, fmt::format("lane {}", lane),
                     {.color = lessons::Color::faint, .size = 11, .anchor = "middle"});
      }
    }
  }
  picture.save(folder, "butterfly");
}

}  // namespace

int main(int argc, char** argv) {
  // 1. Who is who: 2 blocks of 64 threads.
  const Tensor who = full({128}, -1, {.dtype = DType::int32, .device = kCudaEmulated});
  run_who_am_i(2, 64, who.device_pointer<int32_t>());
  const std::vector<int32_t> names = who.to_vector<int32_t>();
  for (const size_t index : {0, 1, 31, 32, 63, 64, 127}) {
    fmt::print("place {}: block {}, thread {}, which is lane {} of warp {}\n", index, names[index] / 100,
               names[index] % 100, names[index] % 100 % 32, names[index] % 100 / 32);
  }
  try {
    (void)who.data<int32_t>();
  } catch (const std::exception& error) {
    fmt::print("the host looks: {}\n", error.what());
  }

  // 2. A sum by shuffles.
  std::vector<float> numbers(32);
  for (size_t lane = 0; lane < 32; ++lane) {
    numbers[lane] = static_cast<float>(lane % 8 + 1);
  }
  const Tensor steps = zeros({5 * 32}, {.device = kCudaEmulated});
  run_butterfly(on_gpu(numbers).device_pointer<float>(), steps.device_pointer<float>());
  const std::vector<float> sums = steps.to_vector<float>();
  fmt::print("\n");
  print("lanes 0 to 7", {numbers.begin(), numbers.begin() + 8});
  for (size_t step = 0; step < 5; ++step) {
    const auto first = sums.begin() + static_cast<std::ptrdiff_t>(step * 32);
    print(fmt::format("mask {}", 1U << step), {first, first + 8});
  }
  draw_butterfly(numbers, sums, lessons::picture_folder(argc, argv));

  // 3. Shared memory: 3 rows of 128 numbers, one block for each row.
  std::vector<float> rows(3 * 128);
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i] = static_cast<float>(i / 128 + 1) + static_cast<float>(i % 2);
  }
  const Tensor x = on_gpu(rows);
  const Tensor result = zeros({3}, {.device = kCudaEmulated});
  float* const to = result.device_pointer<float>();
  run_mean_of_rows(3, 128, x.device_pointer<float>(), to, true);
  fmt::print("\n");
  print("means of three rows", result.to_vector<float>());
  run_variance_of_rows(3, 128, x.device_pointer<float>(), to, true);
  print("variances", result.to_vector<float>());

  // 4. What goes wrong.
  fmt::print("\n");
  print_fault("no barrier before the sums are read",
              [&] { run_mean_of_rows(3, 128, x.device_pointer<float>(), to, false); });
  print_fault("no barrier between two sums",
              [&] { run_variance_of_rows(3, 128, x.device_pointer<float>(), to, false); });
  print_fault("half a barrier", [&] { run_half_a_barrier(64, x.device_pointer<float>()); });
}
