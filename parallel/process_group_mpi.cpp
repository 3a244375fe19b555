#include "core/copy.h"
#include "core/factory.h"
#include "core/share.h"
#include "core/storage.h"
#include "core/tape.h"
#include "ops/shape/copy.h"
#include "parallel/exchange_mpi.h"
#include "parallel/process_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <future>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>

namespace norma::parallel {

namespace {

/// A thread that runs all calls of MPI, one after the other, so that messages travel while others compute.
class MessageThread {
 public:
  explicit MessageThread(const ProcessGroupOptions& options) {
    std::promise<void> started;
    std::future<void> is_started = started.get_future();
    thread_ = std::thread([this, options, &started] { work(options, started); });
    try {
      is_started.get();
    } catch (...) {
      thread_.join();
      throw;
    }
  }
  ~MessageThread() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  MessageThread(const MessageThread&) = delete;
  MessageThread& operator=(const MessageThread&) = delete;

  [[nodiscard]] const Exchange& exchange() const { return *exchange_; }
  [[nodiscard]] double seconds() const { return seconds_.load(); }

  /// Where a rank is lost, all that is begun later, or waits for its turn, fails alike: each would wait once more.
  std::future<void> begin(std::function<void(Exchange&)> work) {
    return queue([this, work = std::move(work)](Exchange& exchange) {
      if (lost_) {
        std::rethrow_exception(lost_);
      }
      try {
        work(exchange);
      } catch (const PeerError&) {
        lost_ = std::current_exception();
        throw;
      }
    });
  }
  std::future<void> queue(std::function<void(Exchange&)> work) {
    std::packaged_task<void()> task([this, work = std::move(work)] {
      const auto start = std::chrono::steady_clock::now();
      work(*exchange_);
      seconds_.fetch_add(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    });
    std::future<void> done = task.get_future();
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
    return done;
  }
  void wait(std::future<void>& done) {
    exchange_->waiting.fetch_add(1);
    done.wait();
    exchange_->waiting.fetch_sub(1);
    done.get();
  }
  void run(std::function<void(Exchange&)> work) {
    std::future<void> done = begin(std::move(work));
    wait(done);
  }
  /// The last one, which also comes where a rank is lost.
  void run_last(std::function<void(Exchange&)> work) {
    std::future<void> done = queue(std::move(work));
    wait(done);
  }

 private:
  void work(const ProcessGroupOptions& options, std::promise<void>& started) {
    std::optional<Exchange> made;
    try {
      made.emplace(options);
    } catch (...) {
      started.set_exception(std::current_exception());
      return;
    }
    exchange_ = &*made;
    started.set_value();
    std::unique_lock lock(mutex_);
    while (true) {
      if (!changed_.wait_for(lock, kBetweenLooks, [&] { return ended_ || !tasks_.empty(); })) {
        look_around(options);
        continue;
      }
      if (tasks_.empty()) {
        return;
      }
      std::packaged_task<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  /// While there is nothing to do.
  void look_around(const ProcessGroupOptions& options) {
    if (options.on_lost && !told_) {
      if (const std::string text = exchange_->find_lost(); !text.empty()) {
        told_ = true;
        options.on_lost(text);
      }
    }
  }

  static constexpr std::chrono::milliseconds kBetweenLooks{100};
  Exchange* exchange_ = nullptr;
  bool told_ = false;                // of a lost rank
  std::atomic<double> seconds_ = 0;  // of the calls so far
  std::exception_ptr lost_;          // of the thread
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::packaged_task<void()>> tasks_;
  bool ended_ = false;
  std::thread thread_;
};

/// own = ((part_0 + part_1) + part_2) + … in float64, rounded once.
template <class T>
void add_parts(const std::vector<const T*>& parts, int64_t count, T* own) {
  constexpr int64_t kBlock = 1024;  // of sums that stay in the cache
  std::array<double, kBlock> sums;
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t length = std::min(kBlock, count - first);
    for (size_t part = 0; part < parts.size(); ++part) {
      const T* const x = parts[part] + first;
      for (int64_t i = 0; i < length; ++i) {
        sums[static_cast<size_t>(i)] = part == 0 ? static_cast<double>(x[i]) : sums[static_cast<size_t>(i)] + x[i];
      }
    }
    for (int64_t i = 0; i < length; ++i) {
      own[first + i] = static_cast<T>(sums[static_cast<size_t>(i)]);
    }
  }
}

/// Each rank adds up its share of the elements, and gives the sums to the others: as many bytes as a ring sends, in two
/// steps, and a fixed order.
template <class T>
void sum_over_ranks(Exchange& exchange, T* x, int64_t count, std::vector<T>& buffer) {
  const int ranks = exchange.size();
  const int self = exchange.rank();
  const Share own = share_of(count, self, ranks);
  buffer.resize(static_cast<size_t>(own.count * (ranks - 1)));
  std::vector<Piece> shares_of_others;
  std::vector<Piece> parts_of_own;
  std::vector<const T*> parts;
  T* next = buffer.data();
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank == self) {
      parts.push_back(x + own.first);
      continue;
    }
    const Share share = share_of(count, rank, ranks);
    shares_of_others.push_back(
        {.rank = rank, .memory = x + share.first, .bytes = static_cast<size_t>(share.count) * sizeof(T)});
    parts_of_own.push_back({.rank = rank, .memory = next, .bytes = static_cast<size_t>(own.count) * sizeof(T)});
    parts.push_back(next);
    next += own.count;
  }
  exchange.run(shares_of_others, parts_of_own);
  add_parts(parts, own.count, x + own.first);
  std::vector<Piece> own_to_others;
  for (const Piece& piece : shares_of_others) {
    own_to_others.push_back(
        {.rank = piece.rank, .memory = x + own.first, .bytes = static_cast<size_t>(own.count) * sizeof(T)});
  }
  exchange.run(own_to_others, shares_of_others);
}

class MpiWork final : public Work {
 public:
  /// `host` has the elements of x, which is another tensor where x is not in memory of the host.
  MpiWork(MessageThread& thread, std::future<void> done, Tensor host, Tensor x)
      : thread_(thread), done_(std::move(done)), host_(std::move(host)), x_(std::move(x)) {}
  ~MpiWork() override {
    if (done_.valid()) {
      done_.wait();  // the thread has the memory
    }
  }
  void wait() override {
    thread_.wait(done_);
    if (x_.defined()) {
      const NoGradGuard no_grad;
      copy_into(host_, x_);
    }
  }

 private:
  MessageThread& thread_;
  std::future<void> done_;
  Tensor host_;
  Tensor x_;
};

class MpiGroup final : public ProcessGroup {
 public:
  explicit MpiGroup(const ProcessGroupOptions& options)
      : thread_(options), rank_(thread_.exchange().rank()), size_(thread_.exchange().size()) {}

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }

  [[nodiscard]] std::unique_ptr<Work> begin_all_reduce(const Tensor& x) override {
    check_summand(x);
    const bool is_here = x.device() == kCpu;
    Tensor host = is_here ? x.detach() : on_host(x);
    std::future<void> done = thread_.begin([this, host](Exchange& exchange) {
      if (host.dtype() == DType::float64) {
        sum_over_ranks(exchange, host.device_pointer<double>(), host.numel(), wide_buffer_);
      } else {
        sum_over_ranks(exchange, host.device_pointer<float>(), host.numel(), buffer_);
      }
    });
    return std::make_unique<MpiWork>(thread_, std::move(done), host, is_here ? Tensor() : x.detach());
  }

  void broadcast(const Tensor& x, int root) override {
    check_dense("broadcast", x);
    check_root(root, size_);
    const bool is_here = x.device() == kCpu;
    const Tensor host = is_here ? x : on_host(x);
    thread_.run([&](Exchange& exchange) {
      std::vector<Piece> sent;
      std::vector<Piece> received;
      const size_t bytes = static_cast<size_t>(host.numel()) * size_of(host.dtype());
      if (rank_ != root) {
        received.push_back({.rank = root, .memory = host.device_pointer(), .bytes = bytes});
      }
      for (int rank = 0; rank < size_ && rank_ == root; ++rank) {
        if (rank != root) {
          sent.push_back({.rank = rank, .memory = host.device_pointer(), .bytes = bytes});
        }
      }
      exchange.run(sent, received);
    });
    if (!is_here) {
      const NoGradGuard no_grad;
      copy_into(host, x);
    }
  }

  [[nodiscard]] Tensor all_gather(const Tensor& x) override {
    check_defined("all_gather", "x", x);
    const NoGradGuard no_grad;
    const Tensor here = contiguous(to_device(x, kCpu));
    Sizes sizes = x.sizes();
    sizes.insert(0, size_);
    const Tensor all = empty(sizes, {.dtype = x.dtype(), .device = kCpu});
    const size_t bytes = static_cast<size_t>(x.numel()) * size_of(x.dtype());
    auto* const memory = static_cast<std::byte*>(all.device_pointer());
    gather(here.device_pointer(), bytes, std::vector<size_t>(static_cast<size_t>(size_), bytes), memory);
    return to_device(all, x.device());
  }

  [[nodiscard]] std::vector<std::string> all_gather_text(std::string_view text) override {
    std::vector<uint64_t> lengths(static_cast<size_t>(size_));
    uint64_t own = text.size();
    gather(&own, sizeof own, std::vector<size_t>(lengths.size(), sizeof own),
           reinterpret_cast<std::byte*>(lengths.data()));
    for (size_t rank = 0; rank < lengths.size(); ++rank) {
      check(lengths[rank] < uint64_t{1} << 31, "all_gather_text",
            "text: expected less than 2 GiB, got {} bytes from rank {}; a processor of the other byte order would say "
            "so, too",
            lengths[rank], rank);
    }
    const std::vector<size_t> bytes(lengths.begin(), lengths.end());
    std::string all(std::accumulate(bytes.begin(), bytes.end(), size_t{0}), '\0');
    gather(const_cast<char*>(text.data()), text.size(), bytes, reinterpret_cast<std::byte*>(all.data()));
    std::vector<std::string> result;
    size_t first = 0;
    for (const size_t length : bytes) {
      result.push_back(all.substr(first, length));
      first += length;
    }
    return result;
  }

  void barrier() override {
    std::byte own{};
    std::vector<std::byte> all(static_cast<size_t>(size_));
    gather(&own, 1, std::vector<size_t>(all.size(), 1), all.data());
  }

  [[nodiscard]] double message_seconds() const override { return thread_.seconds(); }

  void look_for_lost(double seconds) override {
    thread_.run([seconds](Exchange& exchange) { exchange.look_for_lost(seconds); });
  }

  std::vector<std::string> leave(std::string_view text) override {
    std::vector<std::string> texts;
    thread_.run_last([&](Exchange& exchange) { texts = exchange.leave(text); });
    return texts;
  }

 private:
  static Tensor on_host(const Tensor& x) {
    const NoGradGuard no_grad;
    const Tensor host = empty_strided(x.sizes(), x.strides(), {.dtype = x.dtype(), .device = kCpu});
    copy_into(x, host);
    return host;
  }

  /// The memory of all ranks one behind the other; rank r has bytes[r] of it.
  void gather(void* own, size_t own_bytes, const std::vector<size_t>& bytes, std::byte* all) {
    thread_.run([&](Exchange& exchange) {
      std::vector<Piece> sent;
      std::vector<Piece> received;
      std::byte* place = all;
      for (int rank = 0; rank < size_; ++rank) {
        const size_t length = bytes[static_cast<size_t>(rank)];
        if (rank == rank_) {
          std::copy_n(static_cast<const std::byte*>(own), own_bytes, place);
        } else {
          sent.push_back({.rank = rank, .memory = own, .bytes = own_bytes});
          received.push_back({.rank = rank, .memory = place, .bytes = length});
        }
        place += length;
      }
      exchange.run(sent, received);
    });
  }

  MessageThread thread_;
  int rank_;
  int size_;
  std::vector<float> buffer_;  // of the thread
  std::vector<double> wide_buffer_;
};

}  // namespace

bool has_mpi() {
  return true;
}
std::string mpi_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);  // may be asked before MPI_Init
  const std::string_view all(text.data(), static_cast<size_t>(length));
  return std::string(all.substr(0, all.find_first_of(",\n")));  // behind it: who built it, and when
}

std::shared_ptr<ProcessGroup> make_mpi_group(const ProcessGroupOptions& options) {
  return std::make_shared<MpiGroup>(options);
}

}  // namespace norma::parallel
