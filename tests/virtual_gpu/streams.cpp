#include "virtual_gpu/streams.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace virtual_gpu {

namespace {

void nap() {
  std::this_thread::sleep_for(std::chrono::microseconds(20));
}

}  // namespace

Streams::Streams(uint64_t seed, std::function<void(const std::string&, const std::exception&)> failed)
    : random_(seed), failed_(std::move(failed)) {}

template <class F>
void Streams::for_each_stream(F&& f) const {
  f(const_cast<Stream&>(default_));
  for (const auto* list : {&streams_, &destroyed_}) {
    for (const auto& stream : *list) {
      f(*stream);
    }
  }
}

Stream* Streams::create(bool blocking, int device) {
  streams_.push_back(std::make_unique<Stream>());
  streams_.back()->blocking = blocking;
  streams_.back()->device = device;
  return streams_.back().get();
}

void Streams::destroy(Stream* stream) {
  const auto found = std::find_if(streams_.begin(), streams_.end(), [&](const auto& s) { return s.get() == stream; });
  std::erase_if(destroyed_, [](const auto& s) { return s->pending.empty(); });
  destroyed_.push_back(std::move(*found));
  streams_.erase(found);
}

bool Streams::is_stream(const Stream* stream) const {
  return stream == &default_ ||
         std::any_of(streams_.begin(), streams_.end(), [&](const auto& s) { return s.get() == stream; });
}

Ticket Streams::append(Stream& stream, const Work& work, std::vector<Ticket> after) {
  while (stream.pending.size() >= kLongestQueue) {
    run_any();
  }
  if (dropped_) {
    return 0;
  }
  // The default stream and each blocking one wait for each other's earlier work.
  if (&stream == &default_) {
    for_each_stream([&](const Stream& other) {
      if (other.blocking && &other != &stream) {
        after.push_back(other.last);
      }
    });
  } else if (stream.blocking) {
    after.push_back(default_.last);
  }
  std::erase_if(after, [&](Ticket ticket) { return is_done(ticket); });
  const Ticket ticket = ++tickets_;
  stream.pending.push_back({.ticket = ticket,
                            .what = work.what,
                            .action = work.begin(ticket),
                            .after = std::move(after),
                            .is_ready = work.is_ready});
  unfinished_[ticket] = &stream;
  stream.last = ticket;
  return ticket;
}

Ticket Streams::put(Stream& stream, const Work& work) {
  if (stream.capture != nullptr) {
    auto& nodes = stream.capture->graph.nodes;
    nodes.push_back({.work = work, .after = stream.captured});
    stream.captured = {nodes.size() - 1};
    return 0;
  }
  return append(stream, work, {});
}

void Streams::record(Stream& stream, Event& event) {
  event.capture = stream.capture;
  if (stream.capture != nullptr) {
    event.captured = stream.captured;
    return;
  }
  auto record = std::make_shared<Event::Record>();
  const auto note_time = [this, record] {
    record->seconds = seconds_;
    return 0.0;
  };
  record->ticket = append(stream, later("cudaEventRecord", note_time), {});
  event.record = std::move(record);
}

void Streams::wait_for(Stream& stream, const Event& event) {
  const auto capture = event.capture.lock();
  if (capture != nullptr) {
    if (stream.capture == nullptr) {
      stream.capture = capture;
      stream.captured.clear();
    }
    for (const size_t node : event.captured) {
      if (std::find(stream.captured.begin(), stream.captured.end(), node) == stream.captured.end()) {
        stream.captured.push_back(node);
      }
    }
  } else if (event.record != nullptr && !is_done(event.record->ticket)) {
    append(stream, later("cudaStreamWaitEvent", [] { return 0.0; }), {event.record->ticket});
  }
}

void Streams::launch(Stream& stream, const Graph& graph) {
  // The nodes run in some order that the graph allows.
  std::vector<size_t> waits_for(graph.nodes.size());
  std::vector<size_t> ready_nodes;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    waits_for[i] = graph.nodes[i].after.size();
    if (waits_for[i] == 0) {
      ready_nodes.push_back(i);
    }
  }
  while (!ready_nodes.empty()) {
    const size_t at = random(ready_nodes.size());
    const size_t node = ready_nodes[at];
    ready_nodes.erase(ready_nodes.begin() + static_cast<std::ptrdiff_t>(at));
    put(stream, graph.nodes[node].work);
    for (size_t i = node + 1; i < graph.nodes.size(); ++i) {
      const auto& after = graph.nodes[i].after;
      if (std::find(after.begin(), after.end(), node) != after.end() && --waits_for[i] == 0) {
        ready_nodes.push_back(i);
      }
    }
  }
}

bool Streams::is_ready(const Stream& stream) const {
  if (stream.pending.empty()) {
    return false;
  }
  const Stream::Item& next = stream.pending.front();
  return std::all_of(next.after.begin(), next.after.end(), [&](Ticket ticket) { return is_done(ticket); }) &&
         (next.is_ready == nullptr || next.is_ready());
}

std::vector<Stream*> Streams::ready() const {
  std::vector<Stream*> result;
  for_each_stream([&](Stream& stream) {
    if (is_ready(stream)) {
      result.push_back(&stream);
    }
  });
  return result;
}

Stream* Streams::towards(Ticket ticket) const {
  // Work waits for earlier tickets only, so that this ends.
  Stream* stream = unfinished_.at(ticket);
  for (const Ticket earlier : stream->pending.front().after) {
    if (!is_done(earlier)) {
      return towards(earlier);
    }
  }
  return stream;
}

void Streams::run_next(Stream& stream) {
  const Stream::Item item = std::move(stream.pending.front());
  stream.pending.pop_front();
  unfinished_.erase(item.ticket);
  try {
    seconds_ += item.action();
  } catch (const std::exception& error) {
    dropped_ = true;
    for_each_stream([](Stream& each) { each.pending.clear(); });
    unfinished_.clear();
    failed_(item.what, error);
  }
}

void Streams::run_any() {
  const std::vector<Stream*> streams = ready();
  if (streams.empty()) {
    nap();
  } else {
    run_next(*streams[random(streams.size())]);
  }
}

void Streams::finish(Ticket ticket) {
  const auto habit = static_cast<Habit>(random(3));
  while (!is_done(ticket)) {
    Stream* next = nullptr;
    if (habit == Habit::kOnlyNeeded) {
      next = towards(ticket);
      next = is_ready(*next) ? next : nullptr;
    } else {
      std::vector<Stream*> others = ready();
      if (habit == Habit::kOthersFirst && others.size() > 1) {
        std::erase(others, unfinished_.at(ticket));
      }
      next = others.empty() ? nullptr : others[random(others.size())];
    }
    if (next == nullptr) {
      nap();
    } else {
      run_next(*next);
    }
  }
}

void Streams::finish_all() {
  while (!unfinished_.empty()) {
    run_any();
  }
}

void Streams::pass_time() {
  const size_t count = random(3);
  for (size_t i = 0; i < count && !unfinished_.empty(); ++i) {
    run_any();
  }
}

bool Streams::captures() const {
  bool result = false;
  for_each_stream([&](const Stream& stream) { result |= stream.capture != nullptr; });
  return result;
}

bool Streams::captures_blocking() const {
  bool result = false;
  for_each_stream([&](const Stream& stream) { result |= stream.capture != nullptr && stream.blocking; });
  return result;
}

void Streams::break_captures() {
  for_each_stream([](Stream& stream) {
    if (stream.capture != nullptr) {
      stream.capture->broken = true;
    }
  });
}

void Streams::end_capture(const std::shared_ptr<Capture>& capture) {
  for_each_stream([&](Stream& stream) {
    if (stream.capture == capture) {
      stream.capture = nullptr;
      stream.captured.clear();
      stream.began_capture = false;
    }
  });
}

}  // namespace virtual_gpu
