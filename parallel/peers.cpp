#include "parallel/peers.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

namespace norma::parallel {

namespace {

/// What /proc/PID/stat says; the state is '\0' where there is no such process or no /proc.
struct ProcessStat {
  char state = '\0';
  int64_t started = 0;
};

ProcessStat stat_of(const std::string& process) {
  std::ifstream in("/proc/" + process + "/stat");
  std::string text;
  std::getline(in, text);
  const size_t name_end = text.rfind(')');  // a name may have blanks and parentheses
  ProcessStat result;
  if (name_end == std::string::npos) {
    return result;
  }
  std::istringstream fields(text.substr(name_end + 1));
  fields >> result.state;
  std::string skipped;
  constexpr int kBetween = 18;  // "starttime" is field 22, and the state is field 3
  for (int i = 0; i < kBetween; ++i) {
    fields >> skipped;
  }
  fields >> result.started;
  return result;
}

}  // namespace

Peer Peer::self() {
  Peer peer;
  ::gethostname(peer.host.data(), peer.host.size() - 1);
  peer.process = ::getpid();
  peer.started = stat_of("self").started;
  return peer;
}

std::string Peer::text() const {
  return fmt::format("process {} on {}", process, host.data());
}

PeerState state_of(const Peer& peer, const Peer& self) {
  if (peer.host != self.host || self.started == 0) {
    return PeerState::unknown;
  }
  const ProcessStat stat = stat_of(std::to_string(peer.process));
  if (stat.state == '\0' || stat.state == 'Z' || stat.state == 'X' || stat.started != peer.started) {
    return PeerState::gone;
  }
  return stat.state == 'T' || stat.state == 't' ? PeerState::stopped : PeerState::running;
}

}  // namespace norma::parallel
