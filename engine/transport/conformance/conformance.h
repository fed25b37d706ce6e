// The fixture of the conformance suite of transports.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/device/device.h"
#include "engine/transport/testing/target.h"
#include "engine/transport/transport.h"

namespace skein::engine {

inline constexpr auto kLong = std::chrono::seconds(60);  // that no healthy transfer meets
inline constexpr size_t kSourceBytes = 1 << 20;

// One implementation: how to make the source, and targets that it can reach.
struct World {
  std::string name;
  std::string transport;  // expected in PeerInfo::transport
  std::string path;       // and as PeerInfo::path
  std::function<std::unique_ptr<Transport>()> make_source;
  std::function<std::unique_ptr<TestingTarget>()> make_target;
  std::shared_ptr<Device> device = nullptr;  // where the source's memory lies
};

// Whoever links the suite has this, and instantiates it (worlds.cc).
World MakeWorld(const std::string& name);

std::string RandomBytes(size_t bytes, std::mt19937_64* random);

// The parameter names a world.
class TransportConformance : public testing::TestWithParam<const char*> {
 protected:
  TransportConformance();

  // Another source, whose memory is zero.
  void NewSource();

  // The test's way to the source's memory.
  void FillSource(size_t offset, const std::string& data);
  std::string SourceBytes(size_t offset, size_t bytes) const;

  Peer Connected(const std::string& description);
  TransferPiece Piece(size_t region, size_t local, size_t remote, size_t bytes) const {
    return {memory_.id, local, peer_.regions.at(region), remote, bytes};
  }
  TransferId Posted(TransferOp op, const std::vector<TransferPiece>& pieces,
                    std::chrono::nanoseconds timeout = kLong);

  // A put of the source's first bytes to the beginning of a region.
  TransferId PutUnder(GrantId grant, size_t region, size_t bytes);
  // Closes the grant; the source polls until it is.
  void Closed(GrantId grant);

  // The one completion of each of `ids`; fails on any other.
  std::map<TransferId, TransferCompletion> Ended(const std::vector<TransferId>& ids);
  absl::Status EndOf(TransferId id) { return Ended({id})[id].status; }
  absl::Status Run(TransferOp op, const std::vector<TransferPiece>& pieces) {
    return EndOf(Posted(op, pieces));
  }

  // Polls until the peer was found dead; a peer that never is hangs, and the test's own limit ends
  // it.
  void PollUntilBroken();

  World world_;
  std::unique_ptr<Transport> source_;
  Region memory_;
  std::unique_ptr<TestingTarget> target_;
  Peer peer_;
  std::mt19937_64 random_{20261121};
};

// What only a target in a process of its own can suffer: standing still.
class TransportOfProcesses : public TransportConformance {};

}  // namespace skein::engine
