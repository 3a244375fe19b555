#include "lab/bench/floor.h"

#include "core/copy.h"
#include "core/device_functions.h"
#include "core/event.h"
#include "core/factory.h"
#include "core/parallel.h"
#include "lab/bench/spread.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

namespace norma::lab::bench {

namespace {

using kernels::Conv2dCall;
using kernels::Conv2dCase;
using kernels::Conv2dPass;
using kernels::MatmulCase;

/// Memory of bfloat16 numbers from 1 to 2. Pairs of them are float32 from 1 to 2, and four of them a normal float64.
Tensor filled_memory(size_t bytes) {
  const Tensor memory = empty({static_cast<int64_t>((bytes + 7) / 8 * 8)}, {.dtype = DType::uint8, .device = kCpu});
  constexpr unsigned kOne = 0x3F80;
  constexpr unsigned kFractions = 0x80;
  auto* words = static_cast<uint16_t*>(memory.raw_data());
  const int64_t count = memory.numel() / 2;
  parallel_for(0, count, kPointwiseGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      words[i] = static_cast<uint16_t>(kOne + static_cast<unsigned>(i * 37) % kFractions);
    }
  });
  return memory;
}

size_t elements_bytes(int64_t count, DType dtype) {
  return static_cast<size_t>(count) * size_of(dtype);
}

/// Norma's own way to compute the call.
FloorCandidate own_candidate(const Conv2dCall& call) {
  const Conv2dCase conv = call.conv;
  const auto* implementation = &kernels::conv_kernels.at("conv2d", kCpu)->choose(conv, call.pass);
  const size_t x = elements_bytes(conv.n * conv.c * conv.h * conv.w, conv.dtype);
  const size_t y = elements_bytes(conv.n * conv.o * conv.oh * conv.ow, conv.dtype);
  const size_t weight_bytes = elements_bytes(conv.o * (conv.c / conv.groups) * conv.kh * conv.kw, conv.dtype);
  const std::string name(implementation->name);
  switch (call.pass) {
    case Conv2dPass::forward:
      return {name, x, 0, y, [=, weight = filled_memory(weight_bytes)](const FloorMemory& m) {
                implementation->forward(conv, m.a, weight.raw_data(), /* bias= */ nullptr, m.c, /* keep= */ nullptr);
              }};
    case Conv2dPass::input_gradient:
      return {name, y, 0, x, [=, weight = filled_memory(weight_bytes)](const FloorMemory& m) {
                implementation->input_gradient(conv, m.a, weight.raw_data(), m.c);
              }};
    default:
      return {name, x, y, weight_bytes,
              [=](const FloorMemory& m) { implementation->weight_gradient(conv, m.a, m.b, m.c); }};
  }
}

/// Elements from the first to the last of `batch` matrices.
int64_t extent(int64_t batch, int64_t batch_stride, int64_t rows, int64_t row, int64_t columns, int64_t column) {
  return (batch - 1) * batch_stride + (rows - 1) * row + (columns - 1) * column + 1;
}

FloorCandidate own_candidate(const MatmulCase& p) {
  const auto* implementation = &kernels::matmul_kernels.at("matmul", kCpu)->choose(p);
  return {std::string(implementation->name),
          elements_bytes(extent(p.batch, p.a_batch, p.m, p.a_row, p.k, p.a_column), p.dtype),
          elements_bytes(extent(p.batch, p.b_batch, p.k, p.b_row, p.n, p.b_column), p.dtype),
          elements_bytes(extent(p.batch, p.c_batch, p.m, p.c_row, p.n, 1), p.dtype), [=](const FloorMemory& m) {
            implementation->multiply(p, m.a, m.b, /* bias= */ nullptr, m.c, /* keep= */ nullptr);
          }};
}

std::string text_of(const Conv2dCall& call) {
  static constexpr std::string_view kPasses[] = {"forward", "input gradient", "weight gradient"};
  const Conv2dCase& conv = call.conv;
  return fmt::format("conv2d {}x{}{}{} {}→{} {}x{} {}", conv.kh, conv.kw,
                     conv.stride_h > 1 ? fmt::format("/{}", conv.stride_h) : "",
                     conv.groups > 1 ? fmt::format(" in {} groups", conv.groups) : "", conv.c, conv.o, conv.h, conv.w,
                     kPasses[static_cast<size_t>(call.pass)]);
}

std::string text_of(const MatmulCase& p) {
  return fmt::format("matmul {}{}x{}x{}", p.batch > 1 ? fmt::format("{} x ", p.batch) : "", p.m, p.k, p.n);
}

double seconds_of(const FloorCandidate& candidate, const FloorMemory& memory) {
  const Clock::time_point start = Clock::now();
  candidate.run(memory);
  return seconds_between(start, Clock::now());
}

/// The least of a few runs, after one that does not count.
double least_seconds(const FloorCandidate& candidate, const FloorMemory& memory) {
  constexpr int kMostRuns = 5;
  constexpr double kEnough = 0.05;  // seconds
  candidate.run(memory);
  double least = std::numeric_limits<double>::infinity();
  double spent = 0;
  for (int i = 0; i < kMostRuns && (i < 2 || spent < kEnough); ++i) {
    const double seconds = seconds_of(candidate, memory);
    least = std::min(least, seconds);
    spent += seconds;
  }
  return least;
}

}  // namespace

std::vector<ProductCall> product_calls(const std::vector<OpRecord>& records) {
  std::vector<ProductCall> calls;
  for (const OpRecord& record : records) {
    if (const auto* conv = std::get_if<Conv2dCall>(&record.work.call)) {
      calls.emplace_back(*conv);
    } else if (const auto* product = std::get_if<MatmulCase>(&record.work.call)) {
      calls.emplace_back(*product);
    }
  }
  return calls;
}

double flops(const ProductCall& call) {
  if (const auto* conv = std::get_if<Conv2dCall>(&call)) {
    return kernels::flops(conv->conv);
  }
  return kernels::flops(std::get<MatmulCase>(call));
}

std::string to_string(const ProductCall& call) {
  return std::visit([](const auto& plain) { return text_of(plain); }, call);
}

std::vector<double> ProductFloor::run(const std::vector<ProductCall>& calls) {
  std::vector<const FloorCandidate*> ways;
  ways.reserve(calls.size());
  for (const ProductCall& call : calls) {
    ways.push_back(&best(call));
  }
  std::vector<double> seconds;
  seconds.reserve(calls.size());
  for (const FloorCandidate* way : ways) {
    seconds.push_back(seconds_of(*way, memory_for(*way)));
  }
  return seconds;
}

const FloorCandidate& ProductFloor::best(const ProductCall& call) {
  const auto found = best_.find(call);
  if (found != best_.end()) {
    return found->second;
  }
  std::vector<FloorCandidate> candidates = onednn_candidates(call);
  candidates.push_back(std::visit([](const auto& plain) { return own_candidate(plain); }, call));
  std::vector<double> seconds;
  for (const FloorCandidate& candidate : candidates) {
    seconds.push_back(least_seconds(candidate, memory_for(candidate)));
  }
  const auto least = std::min_element(seconds.begin(), seconds.end()) - seconds.begin();
  return best_.emplace(call, std::move(candidates[static_cast<size_t>(least)])).first->second;
}

FloorMemory ProductFloor::memory_for(const FloorCandidate& candidate) {
  const auto grow = [](Tensor& memory, size_t bytes) {
    if (!memory.defined() || memory.numel() < static_cast<int64_t>(bytes)) {
      memory = Tensor();  // freed before the larger one is made
      memory = filled_memory(bytes);
    }
    return memory.raw_data();
  };
  return {grow(a_, candidate.bytes_a), grow(b_, candidate.bytes_b), grow(c_, candidate.bytes_c)};
}

bool in_host_memory(Device device) {
  return device_functions.table("copy", device).cache_bytes == nullptr;
}

Copy::Copy(int64_t bytes, Device device)
    : of_host_(in_host_memory(device)),
      x_(ones({(bytes + 3) / 4}, {.device = of_host_ ? kCpu : device})),
      y_(zeros_like(x_)) {}

double Copy::run() {
  if (!of_host_) {
    Event start(x_.device());
    Event end(x_.device());
    start.record();
    copy_into(x_, y_);
    end.record();
    return end.seconds_since(start);
  }
  const float* from = x_.data<float>();
  float* to = y_.data<float>();
  const Clock::time_point start = Clock::now();
  parallel_for(0, x_.numel(), kPointwiseGrain, [&](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) {
      to[i] = 1.5F * from[i];  // a plain copy would become memcpy, which writes past the caches
    }
  });
  return seconds_between(start, Clock::now());
}

}  // namespace norma::lab::bench
