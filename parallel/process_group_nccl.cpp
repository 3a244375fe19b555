#include "parallel/communicator_nccl.h"
#include "parallel/process_group.h"

#include "core/base_ops.h"
#include "core/copy.h"
#include "core/factory.h"
#include "core/share.h"
#include "core/tape.h"
#include "ops/shape/view.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace norma::parallel {

namespace {

using Clock = std::chrono::steady_clock;

bool is_on_gpu(const Tensor& x) {
  return x.defined() && x.device().type == DeviceType::cuda;
}

Part part_of(int rank, const Tensor& x) {
  return {.rank = rank, .memory = x.device_pointer(), .bytes = static_cast<size_t>(x.numel()) * size_of(x.dtype())};
}

/// The elements of a dense tensor in the order of its memory, from `first` on.
Tensor piece_of(const Tensor& x, int64_t first, int64_t count) {
  return alias(x, {count}, {1}, x.offset() + first);
}
Tensor piece_of(const Tensor& x, Share share) {
  return piece_of(x, share.first, share.count);
}

/// own = ((part_0 + part_1) + part_2) + … in float64, rounded once. `wide` has float64 numbers for two pieces of
/// the parts. Takes no memory, for StreamScope.
void add_parts(const Tensors& parts, const Tensor& own, const Tensor& wide) {
  const int64_t most = wide.numel() / 2;
  for (int64_t first = 0; first < own.numel(); first += most) {
    const int64_t count = std::min(most, own.numel() - first);
    const Tensor sum = piece_of(wide, 0, count);
    const Tensor next = piece_of(wide, most, count);
    for (size_t i = 0; i < parts.size(); ++i) {
      copy_into(piece_of(parts[i], first, count), i == 0 ? sum : next);
      if (i > 0) {
        accumulate_into(sum, next);
      }
    }
    copy_into(sum, piece_of(own, first, count));
  }
}

/// Work of the communicator's stream. What the GPU is given after wait(), or after the end of this, comes behind it.
class NcclWork final : public Work {
 public:
  /// `tensors`: whose memory it uses.
  NcclWork(std::shared_ptr<const cuda::Event> done, Tensors tensors)
      : done_(std::move(done)), tensors_(std::move(tensors)) {}
  ~NcclWork() override {
    try {
      wait();
    } catch (const std::exception&) {
      // A fault of the device: whoever uses it next is told.
    }
  }
  void wait() override {
    if (!tensors_.empty()) {
      cuda::use_device(tensors_.front().device().index);
      done_->hold(cuda::current_stream());
      tensors_.clear();
    }
  }

 private:
  std::shared_ptr<const cuda::Event> done_;
  Tensors tensors_;
};

class NcclGroup final : public ProcessGroup {
 public:
  NcclGroup(std::shared_ptr<ProcessGroup> host, const ProcessGroupOptions& options)
      : host_(std::move(host)), options_(options) {}
  ~NcclGroup() override {
    try {
      if (communicator_) {
        closing_ = true;
        communicator_->close();
      }
    } catch (const std::exception&) {
      // Nobody can be told any more.
    }
  }

  [[nodiscard]] int rank() const override { return host_->rank(); }
  [[nodiscard]] int size() const override { return host_->size(); }

  [[nodiscard]] std::unique_ptr<Work> begin_all_reduce(const Tensor& x) override {
    check_summand(x);
    if (!is_on_gpu(x)) {
      return host_->begin_all_reduce(x);
    }
    const NoGradGuard no_grad;
    begin("all_reduce", x);
    sum_over_ranks(x);
    return end({x.detach()});
  }

  void broadcast(const Tensor& x, int root) override {
    check_dense("broadcast", x);
    check_root(root, size());
    if (!is_on_gpu(x)) {
      return host_->broadcast(x, root);
    }
    const NoGradGuard no_grad;
    begin("broadcast", x);
    follow_kernels();
    if (rank() == root) {
      communicator_->exchange(for_others([&](int other) { return part_of(other, x); }), {});
    } else {
      communicator_->exchange({}, std::vector{part_of(root, x)});
      x.detach().bump_version();
    }
    end({x.detach()})->wait();
  }

  [[nodiscard]] Tensor all_gather(const Tensor& x) override {
    check_defined("all_gather", "x", x);
    if (!is_on_gpu(x)) {
      return host_->all_gather(x);
    }
    const NoGradGuard no_grad;
    begin("all_gather", x);
    Sizes sizes = x.sizes();
    sizes.insert(0, size());
    const Tensor all = empty(sizes, {.dtype = x.dtype(), .device = x.device()});
    const Tensor own = select(all, 0, rank());
    copy_into(x, own);
    follow_kernels();
    communicator_->exchange(for_others([&](int other) { return part_of(other, own); }),
                            for_others([&](int other) { return part_of(other, select(all, 0, other)); }));
    end({all})->wait();
    return all;
  }

  [[nodiscard]] std::vector<std::string> all_gather_text(std::string_view text) override {
    return host_->all_gather_text(text);
  }
  void barrier() override { host_->barrier(); }
  [[nodiscard]] double message_seconds() const override {
    forget_what_is_done();
    return seconds_;
  }
  void look_for_lost(double seconds) override { host_->look_for_lost(seconds); }

  std::vector<std::string> leave(std::string_view text) override {
    std::vector<std::string> texts = host_->leave(text);  // first, so that the others learn the reason from the text
    if (communicator_) {
      communicator_->abort();
    }
    return texts;
  }

 private:
  /// An operation that this rank has begun. The messages of `all_begin` have come when all ranks have.
  struct Begun {
    std::unique_ptr<Work> all_begin;
    std::unique_ptr<cuda::Event> start;
    std::shared_ptr<cuda::Event> done;  ///< null: the host has not given all of it to the GPU yet
  };

  void begin(std::string_view op, const Tensor& x) {
    check(!communicator_ || x.device() == device_, op, "x: expected a tensor on {}, as those before, got one on {}",
          to_string(device_), to_string(x.device()));
    cuda::use_device(x.device().index);
    forget_what_is_done();
    begun_.push_back({.all_begin = host_->begin_all_reduce(zeros({size()}, {.device = kCpu}))});
    if (!communicator_) {
      device_ = x.device();
      communicator_.emplace(*host_, [this](double seconds) { look(seconds); });
      watch_.emplace([this](double seconds) {
        try {
          look(seconds);
        } catch (...) {
          communicator_->abort();
          throw;
        }
      });
    }
  }

  void forget_what_is_done() const {
    while (!begun_.empty() && begun_.front().done != nullptr && begun_.front().done->has_happened()) {
      seconds_ += begun_.front().done->seconds_since(*begun_.front().start);
      begun_.pop_front();
    }
  }

  /// The communicator's stream goes on behind all work that the GPU has.
  void follow_kernels() {
    cuda::Event given;
    given.record(cuda::current_stream());
    given.hold(communicator_->stream().get());
    begun_.back().start = std::make_unique<cuda::Event>();
    begun_.back().start->record(communicator_->stream().get());
  }

  std::unique_ptr<Work> end(Tensors tensors) {
    auto done = std::make_shared<cuda::Event>();
    done->record(communicator_->stream().get());
    begun_.back().done = done;
    return std::make_unique<NcclWork>(std::move(done), std::move(tensors));
  }

  template <class F>
  std::vector<Part> for_others(F&& part) const {
    std::vector<Part> parts;
    for (int other = 0; other < size(); ++other) {
      if (other != rank()) {
        parts.push_back(part(other));
      }
    }
    return parts;
  }

  /// As the MPI group does: each rank adds up its share of the elements, and gives the sums to the others.
  void sum_over_ranks(const Tensor& x) {
    constexpr int64_t kMostWide = int64_t{1} << 20;  // elements that are added up in float64 at once
    const Share own = share_of(x.numel(), rank(), size());
    make_room(received_, (size() - 1) * own.count, x.dtype());
    make_room(wide_, 2 * std::min(own.count, kMostWide), DType::float64);
    const Tensor sums = piece_of(x, own);
    Tensors parts;
    std::vector<Part> coming;
    for (int other = 0; other < size(); ++other) {
      if (other == rank()) {
        parts.push_back(sums);
        continue;
      }
      parts.push_back(piece_of(received_, static_cast<int64_t>(coming.size()) * own.count, own.count));
      coming.push_back(part_of(other, parts.back()));
    }
    const std::vector<Part> shares_of_others =
        for_others([&](int other) { return part_of(other, piece_of(x, share_of(x.numel(), other, size()))); });
    follow_kernels();
    communicator_->exchange(shares_of_others, coming);
    if (own.count > 0) {
      const cuda::StreamScope scope(communicator_->stream());
      add_parts(parts, sums, wide_);
    }
    communicator_->exchange(for_others([&](int other) { return part_of(other, sums); }), shares_of_others);
    x.detach().bump_version();
  }

  /// Memory that the communicator's stream uses again and again.
  void make_room(Tensor& buffer, int64_t count, DType dtype) {
    if (buffer.defined() && buffer.dtype() == dtype && buffer.numel() >= count) {
      return;
    }
    cuda::Event used;
    used.record(communicator_->stream().get());
    used.hold(cuda::current_stream());  // the next owner of the memory comes behind
    buffer = Tensor();
    buffer = empty({count}, {.dtype = dtype, .device = device_});
  }

  /// Called while the host waits for the GPU, or for NCCL: is there still something to wait for?
  void look(double seconds) {
    constexpr double kLookSeconds = 0.1;
    if (seconds < kLookSeconds || Clock::now() < next_look_) {
      return;
    }
    next_look_ = Clock::now() + std::chrono::milliseconds(100);
    forget_what_is_done();
    if (begun_.empty() && !closing_) {
      return;  // the GPU has work of its own
    }
    if (communicator_) {
      communicator_->check_work();
    }
    if (!begun_.empty() && begun_.front().all_begin != nullptr) {
      begun_.front().all_begin->wait();  // names a rank that does not come
      begun_.front().all_begin = nullptr;
    }
    host_->look_for_lost(seconds);
    check(seconds <= options_.timeout, "nccl",
          "expected what other ranks send within {:.0f} s (--timeout), got nothing; all processes are there",
          options_.timeout);
  }

  std::shared_ptr<ProcessGroup> host_;
  ProcessGroupOptions options_;
  Device device_;
  mutable std::deque<Begun> begun_;
  mutable double seconds_ = 0;  // of the operations that are done
  Clock::time_point next_look_;
  bool closing_ = false;
  Tensor received_;  // from the others, of the sum under way
  Tensor wide_;
  std::optional<cuda::WaitWatch> watch_;
  std::optional<Communicator> communicator_;
};

}  // namespace

bool has_nccl() {
  return true;
}
std::string nccl_version() {
  int version = 0;
  (void)ncclGetVersion(&version);
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::shared_ptr<ProcessGroup> make_nccl_group(std::shared_ptr<ProcessGroup> host, const ProcessGroupOptions& options) {
  return std::make_shared<NcclGroup>(std::move(host), options);
}

}  // namespace norma::parallel
