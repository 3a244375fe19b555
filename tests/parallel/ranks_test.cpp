#include "core/memory_format.h"
#include "core/share.h"
#include "error_text.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"
#include "parallel/group.h"
#include "parallel/peers.h"
#include "support.h"

#include <fmt/format.h>

#include <string>
#include <vector>

// ctest runs the cases "ranks: …" alone, and in 2, 3 and 4 processes by mpirun. Each process checks its own results.

using namespace norma;
using parallel::ProcessGroup;
using test::group;

namespace {

/// The tensor of a rank: all ranks know those of all.
Tensor of_rank(const Sizes& sizes, DType dtype, int rank) {
  return test::random_tensor(sizes, 100 + rank, dtype);
}

template <class T>
std::vector<T> sum_of_ranks(const Sizes& sizes, DType dtype) {
  std::vector<double> sums;
  for (int rank = 0; rank < group().size(); ++rank) {
    const std::vector<double> x = of_rank(sizes, dtype, rank).to_vector<double>();
    sums.resize(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      sums[i] = rank == 0 ? x[i] : sums[i] + x[i];
    }
  }
  return {sums.begin(), sums.end()};
}

}  // namespace

TEST_CASE("ranks: sums have the bits of float64 in the order of the ranks, rounded once") {
  for (const int64_t count : {1, 2, 3, 5, 1000, 1023, 100'003}) {
    CAPTURE(count);
    const Tensor x = of_rank({count}, DType::float32, group().rank());
    group().all_reduce(x);
    CHECK(x.to_vector<float>() == sum_of_ranks<float>({count}, DType::float32));
    const Tensor y = of_rank({count}, DType::float64, group().rank());
    group().all_reduce(y);
    CHECK(y.to_vector<double>() == sum_of_ranks<double>({count}, DType::float64));
  }
}

TEST_CASE("ranks: sums of dense tensors of any format, several under way at once") {
  const Sizes sizes{3, 5, 4, 2};
  const Tensor a = copy_of(of_rank(sizes, DType::float32, group().rank()), MemoryFormat::channels_last);
  const Tensor b = of_rank({70'001}, DType::float64, group().rank());
  const Tensor c = of_rank({7}, DType::float32, group().rank());
  std::vector<std::unique_ptr<parallel::Work>> all;
  for (const Tensor& x : {a, b, c}) {
    all.push_back(group().begin_all_reduce(x));
  }
  for (const auto& work : all) {
    work->wait();
  }
  CHECK(a.to_vector<float>() == sum_of_ranks<float>(sizes, DType::float32));
  CHECK(b.to_vector<double>() == sum_of_ranks<double>({70'001}, DType::float64));
  CHECK(c.to_vector<float>() == sum_of_ranks<float>({7}, DType::float32));
  (void)group().begin_all_reduce(zeros({10}, {.device = kCpu}));  // nobody waits, and the memory goes
}

TEST_CASE("ranks: what one has, all get, and what all have, each gets") {
  for (int root = 0; root < group().size(); ++root) {
    const Tensor x = of_rank({11, 3}, DType::float64, group().rank());
    group().broadcast(x, root);
    CHECK(x.to_vector<double>() == of_rank({11, 3}, DType::float64, root).to_vector<double>());
  }
  const Tensor number = full({}, 7.0 + group().rank(), {.dtype = DType::int64, .device = kCpu});
  const std::vector<int64_t> numbers = group().all_gather(number).to_vector<int64_t>();
  const Tensor parts = group().all_gather(of_rank({2, 3}, DType::float32, group().rank()));
  CHECK(parts.sizes() == Sizes{group().size(), 2, 3});
  std::string text(static_cast<size_t>(group().rank()) * 1000, 'x');
  const std::vector<std::string> texts = group().all_gather_text(text);
  REQUIRE(texts.size() == static_cast<size_t>(group().size()));
  for (int rank = 0; rank < group().size(); ++rank) {
    CHECK(numbers[static_cast<size_t>(rank)] == 7 + rank);
    CHECK(select(parts, 0, rank).to_vector<float>() == of_rank({2, 3}, DType::float32, rank).to_vector<float>());
    CHECK(texts[static_cast<size_t>(rank)].size() == static_cast<size_t>(rank) * 1000);
  }
  CHECK(group().all_gather(zeros({0}, {.device = kCpu})).sizes() == Sizes{group().size(), 0});
  group().barrier();
}

TEST_CASE("ranks: numbers of each type reach the others, those of few bytes and of none, too") {
  for (const DType dtype : {DType::float64, DType::float32, DType::float16, DType::bfloat16, DType::int64, DType::int32,
                            DType::uint8, DType::boolean}) {
    for (const Sizes& sizes : {Sizes{}, Sizes{1}, Sizes{0, 3}, Sizes{1023}, Sizes{3, 5, 4, 2}}) {
      CAPTURE(std::string(to_string(dtype)));
      CAPTURE(sizes.size());
      const auto of = [&](int rank) { return to(mul(of_rank(sizes, DType::float64, rank), 50), dtype); };
      const auto values_of = [](const Tensor& x) { return to(x, DType::float64).to_vector<double>(); };
      const int root = group().size() - 1;
      const Tensor x = of(group().rank());
      group().broadcast(x, root);
      CHECK(values_of(x) == values_of(of(root)));
      const Tensor all = group().all_gather(of(group().rank()));
      CHECK(all.dtype() == dtype);
      for (int rank = 0; rank < group().size(); ++rank) {
        CHECK(values_of(select(all, 0, rank)) == values_of(of(rank)));
      }
    }
  }
}

TEST_CASE("ranks: the same sum twenty times has the same bits") {
  std::vector<float> first;
  for (int i = 0; i < 20; ++i) {
    const Tensor x = of_rank({20'011}, DType::float32, group().rank());
    group().all_reduce(x);
    first = i == 0 ? x.to_vector<float>() : first;
    CHECK(x.to_vector<float>() == first);
  }
}

TEST_CASE("ranks: errors of arguments come before anything is sent") {
  using test::error_of;
  CHECK(error_of([] { group().all_reduce(zeros({2}, {.dtype = DType::int64, .device = kCpu})); }) ==
        "all_reduce: x: expected float32 or float64, got int64");
  CHECK(error_of([] { group().all_reduce(Tensor()); }) == "all_reduce: x: expected a tensor, got none");
  CHECK(error_of([] {
          group().all_reduce(narrow(zeros({4, 4}, {.device = kCpu}), 1, 0, 2));
        }) == "all_reduce: x: expected elements side by side, got sizes [4, 2] with strides [4, 1]");
  CHECK(error_of([] { group().broadcast(zeros({2}, {.device = kCpu}), group().size()); }) ==
        fmt::format("broadcast: root: expected a rank from 0 to {}, got {}", group().size() - 1, group().size()));
}

TEST_CASE("nccl: a build without it says so") {
  if (parallel::has_nccl()) {
    CHECK_FALSE(parallel::nccl_version().empty());
    return;
  }
  CHECK(parallel::nccl_version().empty());
  CHECK(test::error_of([] { parallel::make_nccl_group(parallel::make_single_group()); }) ==
        "nccl: expected a build with NCCL, got one without; install libnccl-dev, and build with NORMA_CUDA=ON");
}

TEST_CASE("shares: all images, in the order of the ranks, as evenly as can be") {
  for (const int64_t total : {0, 1, 3, 23, 24}) {
    for (const int ranks : {1, 2, 3, 4, 7}) {
      int64_t next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const Share share = share_of(total, rank, ranks);
        CHECK(share.first == next);
        CHECK(share.count >= total / ranks);
        CHECK(share.count <= total / ranks + 1);
        next += share.count;
      }
      CHECK(next == total);
    }
  }
}

TEST_CASE("peers: a process on this machine that runs, one that never was, one elsewhere") {
  const parallel::Peer self = parallel::Peer::self();
  CHECK(state_of(self, self) == parallel::PeerState::running);
  parallel::Peer other = self;
  other.started += 1;  // the number now belongs to a later process
  CHECK(state_of(other, self) == parallel::PeerState::gone);
  other = self;
  other.process = int64_t{1} << 22;  // the system has no such numbers
  CHECK(state_of(other, self) == parallel::PeerState::gone);
  other = self;
  other.host[0] = '?';
  CHECK(state_of(other, self) == parallel::PeerState::unknown);
}
