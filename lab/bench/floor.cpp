#include "lab/bench/floor.h"

#include "base/lists.h"
#include "core/copy.h"
#include "core/device_functions.h"
#include "core/event.h"
#include "core/factory.h"
#include "core/parallel.h"
#include "lab/bench/spread.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <limits>
#include <string_view>

namespace norma::lab::bench {

namespace {

using kernels::Conv2dCall;
using kernels::Conv2dCase;
using kernels::Conv2dPass;
using kernels::MatmulCase;

constexpr std::string_view kOp = "bench";

/// Memory of bfloat16 numbers from 1 to 2. Pairs of them are float32 from 1 to 2, and four of them a normal float64.
Tensor filled_memory(size_t bytes, Device device) {
  constexpr size_t kNumbers = 128;  // then they repeat
  std::array<uint16_t, kNumbers> numbers{};
  for (size_t i = 0; i < kNumbers; ++i) {
    constexpr size_t kOne = 0x3F80;
    numbers[i] = static_cast<uint16_t>(kOne + i * 37 % kNumbers);
  }
  const auto doubles = std::bit_cast<std::array<double, sizeof(numbers) / sizeof(double)>>(numbers);
  const Tensor row = from_vector<double>({doubles.begin(), doubles.end()}, {static_cast<int64_t>(doubles.size())},
                                         {.dtype = DType::float64, .device = device});
  const auto rows = static_cast<int64_t>((bytes + sizeof(numbers) - 1) / sizeof(numbers));
  const Tensor memory = empty({rows, row.numel()}, {.dtype = DType::float64, .device = device});
  copy_into(row, memory);
  return memory;
}

size_t elements_bytes(int64_t count, DType dtype) {
  return static_cast<size_t>(count) * size_of(dtype);
}

/// Norma's own way to compute the call.
FloorCandidate own_candidate(const Conv2dCall& call, Device device) {
  const Conv2dCase conv = call.conv;
  const Conv2dPass pass = call.pass;
  const auto way = [=]() -> const auto& {
    return kernels::conv_kernels.at(kOp, device)->choose(conv, pass);
  };
  const std::string name(way().name);
  const size_t x = elements_bytes(conv.n * conv.c * conv.h * conv.w, conv.dtype);
  const size_t y = elements_bytes(conv.n * conv.o * conv.oh * conv.ow, conv.dtype);
  const size_t weight_bytes = elements_bytes(conv.o * (conv.c / conv.groups) * conv.kh * conv.kw, conv.dtype);
  switch (pass) {
    case Conv2dPass::forward:
      return {name, x, 0, y, [=, weight = filled_memory(weight_bytes, device)](const FloorMemory& m) {
                way().forward(conv, m.a, weight.device_pointer(), /* bias= */ nullptr, m.c, /* keep= */ nullptr);
              }};
    case Conv2dPass::input_gradient:
      return {name, y, 0, x, [=, weight = filled_memory(weight_bytes, device)](const FloorMemory& m) {
                way().input_gradient(conv, m.a, weight.device_pointer(), m.c);
              }};
    default:
      return {name, x, y, weight_bytes, [=](const FloorMemory& m) { way().weight_gradient(conv, m.a, m.b, m.c); }};
  }
}

/// Elements from the first to the last of `batch` matrices.
int64_t extent(int64_t batch, int64_t batch_stride, int64_t rows, int64_t row, int64_t columns, int64_t column) {
  return (batch - 1) * batch_stride + (rows - 1) * row + (columns - 1) * column + 1;
}

FloorCandidate own_candidate(const MatmulCase& p, Device device) {
  return {std::string(kernels::matmul_kernels.at(kOp, device)->choose(p).name),
          elements_bytes(extent(p.batch, p.a_batch, p.m, p.a_row, p.k, p.a_column), p.dtype),
          elements_bytes(extent(p.batch, p.b_batch, p.k, p.b_row, p.n, p.b_column), p.dtype),
          elements_bytes(extent(p.batch, p.c_batch, p.m, p.c_row, p.n, 1), p.dtype), [=](const FloorMemory& m) {
            kernels::matmul_kernels.at(kOp, device)
                ->choose(p)
                .multiply(p, m.a, m.b, /* bias= */ nullptr, m.c, /* keep= */ nullptr);
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

}  // namespace

std::vector<ProductCall> product_calls(const std::vector<OpRecord>& records) {
  std::vector<ProductCall> calls;
  for (const OpRecord& record : records) {
    if (const auto* conv = std::any_cast<Conv2dCall>(&record.work.call)) {
      calls.emplace_back(*conv);
    } else if (const auto* product = std::any_cast<MatmulCase>(&record.work.call)) {
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

bool in_host_memory(Device device) {
  return device_functions.table(kOp, device).cache_bytes == nullptr;
}

int64_t bytes_beyond_caches(Device device) {
  constexpr int64_t kCommonHosts = int64_t{128} << 20;
  constexpr int64_t kTimes = 4;
  return in_host_memory(device) ? kCommonHosts
                                : kTimes * static_cast<int64_t>(device_functions.at(kOp, device)->cache_bytes());
}

DeviceCache::DeviceCache(Device device) {
  if (!in_host_memory(device)) {
    other_ = zeros({bytes_beyond_caches(device) / static_cast<int64_t>(sizeof(float))}, {.device = device});
  }
}

void DeviceCache::clear() const {
  if (other_.defined()) {
    fill_(other_, 1);
  }
}

std::vector<double> ProductFloor::run(const std::vector<ProductCall>& calls) {
  const auto ways = mapped(calls, [this](const ProductCall& call) { return &best(call); });
  return mapped(ways, [this](const FloorCandidate* way) {
    const FloorMemory memory = memory_for(*way);
    return in_host_memory(device_) ? seconds_of(*way, memory) : least_seconds(*way, memory);
  });
}

const FloorCandidate& ProductFloor::best(const ProductCall& call) {
  const auto found = best_.find(call);
  if (found != best_.end()) {
    return found->second;
  }
  std::vector<FloorCandidate> candidates;
  if (in_host_memory(device_)) {
    candidates = onednn_candidates(call);
  }
  candidates.push_back(std::visit([this](const auto& plain) { return own_candidate(plain, device_); }, call));
  if (candidates.size() == 1) {
    return best_.emplace(call, std::move(candidates.front())).first->second;
  }
  const auto seconds = mapped(
      candidates, [this](const FloorCandidate& candidate) { return least_seconds(candidate, memory_for(candidate)); });
  const auto least = std::ranges::min_element(seconds) - seconds.begin();
  return best_.emplace(call, std::move(candidates[static_cast<size_t>(least)])).first->second;
}

const DeviceCache& ProductFloor::cache() {
  if (!cache_) {
    cache_.emplace(device_);
  }
  return *cache_;
}

FloorMemory ProductFloor::memory_for(const FloorCandidate& candidate) {
  const auto grow = [this](Tensor& memory, size_t bytes) {
    if (!memory.defined() || elements_bytes(memory.numel(), memory.dtype()) < bytes) {
      memory = Tensor();  // freed before the larger one is made
      memory = filled_memory(bytes, device_);
    }
    return memory.device_pointer();
  };
  return {grow(a_, candidate.bytes_a), grow(b_, candidate.bytes_b), grow(c_, candidate.bytes_c)};
}

double ProductFloor::seconds_of(const FloorCandidate& candidate, const FloorMemory& memory) {
  const auto access = device_functions.at(kOp, device_);  // to cuda-emulated's memory, for oneDNN
  if (!in_host_memory(device_)) {
    cache().clear();  // the host gets ahead meanwhile
    candidate.run(memory);
  }
  Event start(device_);
  Event end(device_);
  start.record();
  candidate.run(memory);
  end.record();
  return end.seconds_since(start);
}

/// The least of a few runs, after one that does not count.
double ProductFloor::least_seconds(const FloorCandidate& candidate, const FloorMemory& memory) {
  constexpr int kMostRuns = 5;
  constexpr double kEnough = 0.05;  // seconds
  seconds_of(candidate, memory);
  double least = std::numeric_limits<double>::infinity();
  double spent = 0;
  for (int i = 0; i < kMostRuns && (i < 2 || spent < kEnough); ++i) {
    const double seconds = seconds_of(candidate, memory);
    least = std::min(least, seconds);
    spent += seconds;
  }
  return least;
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
