// RankWire: short messages between the ranks of a group on one node, in order for each pair,
// through shared memory (host_wire.h), with word of a rank's death at once. It carries the step
// feed; what the ranks compute travels through communicators.
//
// One thread calls all but Wake and name.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/host/host_wire.h"
#include "engine/host/process_watch.h"

namespace skein::engine {

class RankWire {
 public:
  // What came from `rank`: a message, or last the news that its process has ended. If a process
  // ends before this one has read its first message, all its messages are lost: only it held them.
  struct Arrival {
    int rank = 0;
    std::string message;
    bool died = false;
  };

  // UNAVAILABLE: this system has no wire between processes.
  static absl::StatusOr<std::unique_ptr<RankWire>> Make();
  ~RankWire();

  // By which others reach it.
  const std::string& name() const { return name_; }

  // From now on this is rank `rank` of the group `id` whose rank r is the wire names[r]; messages
  // of other groups are dropped, those not yet sent are forgotten. INVALID_ARGUMENT: names[rank] is
  // another wire, or a name is malformed. UNAVAILABLE: a rank has ended, or is not on this node.
  // RESOURCE_EXHAUSTED: no descriptors or memory now. After an error it is in no group.
  absl::Status Join(uint64_t id, std::span<const std::string> names, int rank);
  // Every group's end.
  void Leave();

  // Sends at once if there is room, else in a later call of Wait. At most kMessageMax - 64 bytes.
  // To one that has died: nothing. REQUIRES: joined, another rank of the group.
  void Send(int rank, std::string message);

  // Waits until something has come, Wake was called, or the time. Empty: one of the latter two.
  std::vector<Arrival> Wait(std::chrono::steady_clock::time_point until);
  void Wake();  // any thread

 private:
  struct Peer {
    std::unique_ptr<HostChannel> channel;
    std::string process;
    std::deque<std::string> unsent;
    bool ended = false;  // its process has; its last messages may be unread
    bool dead = false;   // told
  };

  RankWire(std::unique_ptr<HostWire> host, std::string name);
  bool Write(Peer* peer, const std::string& message);
  void SendUnsent();
  bool AwaitRoom();
  void Read(std::vector<Arrival>* arrivals);
  void NoteDeaths(std::vector<Arrival>* arrivals);
  void Sleep(std::chrono::steady_clock::time_point until);
  bool TakeWake();

  const std::unique_ptr<HostWire> host_;
  const std::string name_;
  const int wake_fd_;
  std::unique_ptr<ProcessWatch> watch_;
  uint64_t group_ = 0;
  int rank_ = -1;
  std::vector<Peer> peers_;  // by rank; its own has no channel
};

}  // namespace skein::engine
