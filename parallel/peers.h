#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace norma::parallel {

/// What a rank tells the others of itself at the start. Of fixed size, for MPI_Allgather.
struct Peer {
  std::array<char, 256> host{};
  int64_t process = 0;
  int64_t started = 0;  ///< in clock ticks since boot; tells the process from a later one of its number

  static Peer self();
  /// "process 4711 on node3"
  [[nodiscard]] std::string text() const;
};

enum class PeerState : uint8_t { running, stopped, gone, unknown };

/// The state of a process, if it is on this machine; else unknown.
PeerState state_of(const Peer& peer, const Peer& self);

}  // namespace norma::parallel
