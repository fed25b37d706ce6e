// A Link between devices of one node, without the host's memory: the receiver copies straight out
// of the sender's memory. Internal to engine/comm.
//
// For each message the sender tells over the hosts' link where the bytes lie (that link also sees
// sizes that differ, peers that never call, stall or died), the receiver copies them on a stream of
// its own and, when that is done, says so; then the sender's buffer is the caller's again. So a
// Wait costs two words on the hosts' link, whatever the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "engine/comm/device/stream_memory.h"
#include "engine/device/peer_opener.h"

namespace skein::engine {

class PeerMemory : public StreamMemory {
 public:
  virtual absl::StatusOr<PeerPlace> Export(const std::byte* data) = 0;
  // Where this process's Copy reads it, for as long as the memory lives. UNAVAILABLE when this
  // device cannot.
  virtual absl::StatusOr<const std::byte*> Import(const PeerPlace& place) = 0;
};

class PeerLink : public Link {
 public:
  using Done = std::function<void(std::unique_ptr<PeerMemory>)>;

  // `hosts` is the same group's link between the hosts. `memory` is the link's alone; `done` gets
  // it at the end of a link none of whose waits has failed.
  PeerLink(std::unique_ptr<Link> hosts, std::unique_ptr<PeerMemory> memory, Done done)
      : hosts_(std::move(hosts)), memory_(std::move(memory)), done_(std::move(done)) {}
  ~PeerLink() override {
    if (!failed_ && messages_.empty()) done_(std::move(memory_));
  }

  int Rank() const override { return hosts_->Rank(); }
  int Size() const override { return hosts_->Size(); }
  void Send(int to, std::span<const std::byte> data, Signature signature) override;
  void Receive(int from, std::span<std::byte> data, Signature signature) override;
  absl::Status Wait(CommDeadline deadline) override;
  absl::Status Health() override { return hosts_->Health(); }
  LinkMemory* Memory() override { return memory_.get(); }
  void Abort(const absl::Status& reason) override { hosts_->Abort(reason); }

 private:
  struct Message {
    bool outgoing = false;
    int peer = 0;
    std::span<std::byte> data;
    Signature signature = 0;
    PeerPlace place;
  };

  absl::Status Tell(CommDeadline deadline);
  absl::Status CopyIn();
  absl::Status Acknowledge(CommDeadline deadline);

  const std::unique_ptr<Link> hosts_;
  std::unique_ptr<PeerMemory> memory_;
  const Done done_;
  bool failed_ = false;            // a Wait
  std::vector<Message> messages_;  // since the last Wait
};

}  // namespace skein::engine
