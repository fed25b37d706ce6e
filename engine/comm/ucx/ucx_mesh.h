// UcxMesh: the wires of a UCX fabric and its groups, whose calls wait here. Internal to
// engine/comm. Thread-safe.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/comm/ring_fabric.h"
#include "engine/comm/ucx/early_groups.h"
#include "engine/comm/ucx/ucx_peers.h"
#include "engine/comm/ucx/wire_group.h"
#include "engine/ucx/ucx_parts.h"

namespace skein::engine {

// A group's end and the call that waits for it.
struct UcxGroup {
  WireGroup wire;
  std::vector<UcxPeer*> peers;  // by rank; its own is null
  std::condition_variable changed;
  uint64_t changes = 0;
  bool late = false;  // its own deadline broke it
};

class UcxMesh final : private PlaneUser {
 public:
  explicit UcxMesh(UcxParts parts);
  ~UcxMesh();
  UcxMesh(const UcxMesh&) = delete;

  // `addresses` of the group's ranks. ALREADY_EXISTS; RESOURCE_EXHAUSTED: this process has no
  // descriptors or memory left now.
  absl::StatusOr<UcxGroup*> AddGroup(GroupDigest key, std::span<const UcxAddress> addresses,
                                     int rank);
  void RemoveGroup(UcxGroup* group);
  // The connection to a process, which its first group would make. As RingFabric::Connect.
  absl::Status Connect(const UcxAddress& address);
  bool Connected(const UcxAddress& address);
  FabricCounts Links();  // looks for processes that have died

  void Send(UcxGroup* group, int to, std::span<const std::byte> data, Signature signature);
  void Receive(UcxGroup* group, int from, std::span<std::byte> data, Signature signature);
  absl::Status Wait(UcxGroup* group, CommDeadline deadline);
  absl::Status Health(UcxGroup* group);
  void Abort(UcxGroup* group, const absl::Status& reason);

 private:
  using Lock = std::unique_lock<std::mutex>;

  void OnMessage(std::span<const std::byte> message) override;
  void OnSent(void* cookie, bool ok) override { peers_.OnSent(cookie, ok); }
  void OnKept() override;
  void Arrived(const WireHeader& header, std::span<const std::byte> data);
  void WasSent(const UcxOperation& operation);
  void OnDeath();

  Lock Enter();
  void Breathe(Lock* lock);
  bool Progress();
  int MoveMessages();
  void Pump(UcxGroup* group);
  void SendControls(UcxGroup* group);
  void Changed(UcxGroup* group);
  absl::Status Lacking(const UcxGroup& group) const;
  bool Settled(UcxGroup* group, CommDeadline deadline);
  bool Sleep(UcxGroup* group, CommDeadline deadline, bool stuck, Lock* lock);
  bool SleepOnWorker(UcxGroup* group, CommDeadline deadline, Lock* lock);
  bool Arm();
  void Kick();
  void Leave();
  void SendLeftovers();
  void RestLeftovers(int millis_max, Lock* lock);
  void WakeLeftovers();

  const std::shared_ptr<UcxPlane> plane_;
  const std::unique_ptr<HostWire> host_;
  const std::unique_ptr<TcpWire> tcp_;
  const int leftovers_fd_;  // ends the rest of the thread of leftovers
  int rung_fd_ = -1;        // the plane's
  int kick_fd_ = -1;        // ends the sleep on the worker
  std::atomic<int> entering_{0};
  std::atomic<bool> kept_{false};  // the plane keeps much for this, which Progress would take

  std::mutex mutex_;  // guards the wires and all below; the plane's own comes after it
  UcxPeers peers_;
  std::map<GroupDigest, std::unique_ptr<UcxGroup>> groups_;
  EarlyGroups early_;
  std::vector<UcxGroup*> to_send_controls_;

  bool on_worker_ = false;               // a call sleeps on the worker,
  UcxGroup* on_worker_group_ = nullptr;  // in a call of this group (null: the thread of leftovers)
  bool disarmed_ = false;                // others took the worker's events since it fell asleep
  int calls_ = 0;                        // Waits under way
  std::vector<UcxGroup*> sleepers_;      // on their condition variables

  bool stopping_ = false;
  std::thread leftovers_thread_;
};

}  // namespace skein::engine
