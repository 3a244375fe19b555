#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

// Streams that do their work as late as CUDA allows, and in an order that only events decide.

namespace virtual_gpu {

/// What a piece of work does when its turn comes: it returns the seconds that the virtual clock goes on by.
using Action = std::function<double()>;

/// The place of a piece of work among all that was ever given to a stream; 0: none.
using Ticket = uint64_t;

/// A piece of work for a stream.
struct Work {
  std::string what;  ///< for errors: "cudaMemcpyAsync of 4096 bytes"
  /// What is done at the moment when the work is given to a stream; its result is run later. A graph keeps this, and
  /// calls it at each launch.
  std::function<Action(Ticket)> begin;
  /// False: it waits for another process, and all behind it does. Asked again and again once its turn has come; null:
  /// it waits for none.
  std::function<bool()> is_ready = nullptr;
};
/// Work that only runs later.
inline Work later(std::string what, Action action) {
  return {.what = std::move(what), .begin = [action = std::move(action)](Ticket) { return action; }};
}

/// The work that a capture recorded, and then the graph.
struct Graph {
  struct Node {
    Work work;
    std::vector<size_t> after;  ///< earlier nodes
  };
  std::vector<Node> nodes;
  uint64_t memory = 0;  ///< the address of what an executable one takes on the device from its upload on; 0: none yet
};

/// A capture that runs: from cudaStreamBeginCapture to cudaStreamEndCapture.
struct Capture {
  Graph graph;
  bool broken = false;  ///< a call that a capture forbids was made
};

/// The state of one cudaStream_t.
struct Stream {
  struct Item {
    Ticket ticket = 0;
    std::string what;
    Action action;
    std::vector<Ticket> after;
    std::function<bool()> is_ready;
  };

  int device = 0;        ///< the number of the GPU
  bool blocking = true;  ///< it waits for the default stream, which waits for it
  Ticket last = 0;
  std::deque<Item> pending;
  std::shared_ptr<Capture> capture;  ///< where its work goes while it is captured
  std::vector<size_t> captured;      ///< the nodes that the next one comes after
  bool began_capture = false;
};

/// One cudaEvent_t: the work that the latest cudaEventRecord saw.
struct Event {
  struct Record {
    Ticket ticket = 0;
    double seconds = 0;  ///< of the virtual clock, once the ticket is done
  };

  int device = 0;
  bool has_time = true;
  std::shared_ptr<Record> record;
  std::weak_ptr<Capture> capture;  ///< recorded in a capture
  std::vector<size_t> captured;
};

/// All streams of all devices. Not for several threads at once.
class Streams {
 public:
  /// Work of a stream beyond this is run, as a GPU's queue is only so long.
  static constexpr size_t kLongestQueue = 1024;

  /// @param failed  told of what a piece of work throws; from then on all work is dropped.
  Streams(uint64_t seed, std::function<void(const std::string& what, const std::exception& error)> failed);

  [[nodiscard]] Stream& default_stream() { return default_; }
  Stream* create(bool blocking, int device = 0);
  /// Its work is still done.
  void destroy(Stream* stream);
  [[nodiscard]] bool is_stream(const Stream* stream) const;

  /// Gives work to a stream: into the capture, where it is captured.
  Ticket put(Stream& stream, const Work& work);
  void record(Stream& stream, Event& event);
  void wait_for(Stream& stream, const Event& event);
  void launch(Stream& stream, const Graph& graph);

  [[nodiscard]] bool is_done(Ticket ticket) const { return !unfinished_.contains(ticket); }
  /// Runs work until that of the ticket is done, and other work by chance. Where all of it waits for other processes,
  /// the thread sleeps now and then.
  void finish(Ticket ticket);
  void finish(const Stream& stream) { finish(stream.last); }
  void finish_all();
  /// Runs some work by chance: time passes while the program asks whether work is done.
  void pass_time();

  [[nodiscard]] double seconds() const { return seconds_; }
  /// Whether work of a stream that the default stream waits for is captured.
  [[nodiscard]] bool captures_blocking() const;
  [[nodiscard]] bool captures() const;
  void break_captures();
  /// No stream takes part in it any more.
  void end_capture(const std::shared_ptr<Capture>& capture);
  /// Takes work again after a failure; for tests of failures.
  void resume() { dropped_ = false; }

 private:
  /// How much other work runs while the program waits for some.
  enum class Habit { kOnlyNeeded, kAny, kOthersFirst };

  Ticket append(Stream& stream, const Work& work, std::vector<Ticket> after);
  [[nodiscard]] bool is_ready(const Stream& stream) const;
  [[nodiscard]] std::vector<Stream*> ready() const;
  /// A stream whose next work must be done before the ticket's.
  Stream* towards(Ticket ticket) const;
  void run_next(Stream& stream);
  /// Of the work that is ready; none may be.
  void run_any();
  size_t random(size_t below) { return static_cast<size_t>(random_() % below); }
  template <class F>
  void for_each_stream(F&& f) const;

  std::mt19937_64 random_;
  std::function<void(const std::string&, const std::exception&)> failed_;
  bool dropped_ = false;
  Stream default_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<std::unique_ptr<Stream>> destroyed_;
  std::map<Ticket, Stream*> unfinished_;
  Ticket tickets_ = 0;
  double seconds_ = 0;
};

}  // namespace virtual_gpu
