#include "engine/transport/ucx/ucx_wire.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <utility>

#include "engine/transport/description.h"
#include "engine/transport/testing/target.h"
#include "engine/ucx/ucx_parts.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

struct AddressedWire {
  std::string address;
  std::unique_ptr<Wire> wire;
};

AddressedWire Make(size_t sources_max = kUcxSourcesMax) {
  auto parts = MakeUcxParts({.tls = "self,shm"});
  SKEIN_CHECK(parts.ok() && parts->host != nullptr);
  const std::string address = parts->address;
  return {address, MakeUcxWire(*std::move(parts), nullptr, nullptr, sources_max)};
}

// The word of a death does not wait until nobody else has anything to say.
TEST(UcxWireTest, UnderTrafficADeadPeerIsLostToo) {
  const AddressedWire reader = Make(), writer = Make();
  const auto peer = SpawnProcessTarget("self,shm");
  const auto description = ParseDescription(peer->Describe());
  ASSERT_TRUE(description.ok());
  const auto to_peer = reader.wire->Open(description->worker_address);
  ASSERT_TRUE(to_peer.ok()) << to_peer.status();
  const auto to_reader = writer.wire->Open(reader.address);
  ASSERT_TRUE(to_reader.ok()) << to_reader.status();
  std::array<std::byte, 64> memory{}, sent{};
  const auto mapping = reader.wire->Map(memory.data(), memory.size());
  ASSERT_TRUE(mapping.ok());
  const auto address = reinterpret_cast<uint64_t>(memory.data());
  const auto key = writer.wire->Import(*to_reader, {1, address, memory.size(), mapping->key});
  ASSERT_TRUE(key.ok());
  const WirePiece piece = {sent.data(), address, sent.size(), *key};
  WireTicket ticket;
  peer->Kill();
  for (int i = 0; i < 10; ++i) {
    writer.wire->Start(*to_reader, TransferOp::kPut, {&piece, 1}, &ticket);
    EXPECT_TRUE(reader.wire->Progress());
  }
  EXPECT_FALSE(reader.wire->Health(*to_peer).ok());
}

// What a flush's answer says of puts is what the contract of wire.h says: those started before it.
TEST(UcxWireTest, AFlushAcknowledgesNoPutThatWasStartedAfterIt) {
  const AddressedWire target = Make(), writer = Make();
  const auto endpoint = writer.wire->Open(target.address);
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  std::array<std::byte, 128> memory{};
  std::array<std::byte, 64> sent;
  sent.fill(std::byte{7});
  const auto mapping = target.wire->Map(memory.data(), memory.size());
  ASSERT_TRUE(mapping.ok());
  const auto address = reinterpret_cast<uint64_t>(memory.data());
  const auto key = writer.wire->Import(*endpoint, {1, address, memory.size(), mapping->key});
  ASSERT_TRUE(key.ok());
  const auto put = [&](uint64_t offset, WireTicket* ticket) {
    const WirePiece piece = {sent.data(), address + offset, sent.size(), *key};
    writer.wire->Start(*endpoint, TransferOp::kPut, {&piece, 1}, ticket);
  };
  WireTicket first, second;
  put(0, &first);
  writer.wire->Flush(*endpoint, &first);
  put(64, &second);
  while (first.in_flight > 0) {
    target.wire->Progress();
    writer.wire->Progress();
  }
  EXPECT_EQ(memory[63], std::byte{7});
  writer.wire->Flush(*endpoint, &second);
  EXPECT_EQ(second.in_flight, 1u) << "the target has said nothing of the second put";
  while (second.in_flight > 0) {
    target.wire->Progress();
    writer.wire->Progress();
  }
  EXPECT_EQ(memory[127], std::byte{7});
  WireTicket nothing;
  writer.wire->Flush(*endpoint, &nothing);
  EXPECT_EQ(nothing.in_flight, 0u) << "all puts are acknowledged";
  EXPECT_TRUE(first.error.ok() && second.error.ok() && nothing.error.ok());
}

// A target that holds two connections, and three sources.
class FullTarget : public ::testing::Test {
 protected:
  struct Source {
    AddressedWire wire = Make();
    uint64_t endpoint = 0;
    uint64_t key = 0;
  };

  FullTarget() {
    const auto mapping = target_.wire->Map(memory_.data(), memory_.size());
    SKEIN_CHECK(mapping.ok());
    mapping_key_ = mapping->key;
  }

  void Open(Source* source) {
    const auto endpoint = source->wire.wire->Open(target_.address);
    SKEIN_CHECK(endpoint.ok());
    source->endpoint = *endpoint;
    const auto address = reinterpret_cast<uint64_t>(memory_.data());
    const auto key =
        source->wire.wire->Import(*endpoint, {1, address, memory_.size(), mapping_key_});
    SKEIN_CHECK(key.ok());
    source->key = *key;
  }

  void Start(Source* source, uint8_t value, WireTicket* ticket) {
    sent_ = std::byte{value};
    const WirePiece piece = {&sent_, reinterpret_cast<uint64_t>(memory_.data()), 1, source->key};
    source->wire.wire->Start(source->endpoint, TransferOp::kPut, {&piece, 1}, ticket);
  }

  // In so many rounds a message comes and its answer goes many times.
  template <typename Done>
  bool Await(Done done) {
    for (int i = 0; i < 10'000 && !done(); ++i) {
      target_.wire->Progress();
      for (Source& source : sources_) source.wire.wire->Progress();
    }
    return done();
  }

  void ExpectPutArrives(Source* source, uint8_t value) {
    WireTicket ticket;
    Start(source, value, &ticket);
    source->wire.wire->Flush(source->endpoint, &ticket);
    EXPECT_TRUE(Await([&] { return ticket.in_flight == 0; })) << "the target does not answer";
    EXPECT_TRUE(ticket.error.ok()) << ticket.error;
    EXPECT_EQ(memory_[0], std::byte{value});
    EXPECT_TRUE(source->wire.wire->Health(source->endpoint).ok());
  }

  const AddressedWire target_ = Make(2);
  std::array<std::byte, 1> memory_{};
  std::byte sent_{};
  std::string mapping_key_;
  std::array<Source, 3> sources_;
};

TEST_F(FullTarget, TheLongestIdleSourceMakesRoomAndComesBackUnnoticed) {
  uint8_t value = 0;
  for (int round = 0; round < 3; ++round) {
    for (Source& source : sources_) {
      if (round == 0) Open(&source);
      ExpectPutArrives(&source, ++value);
    }
  }
}

TEST_F(FullTarget, ASourceWhosePutsWereNotAcknowledgedHearsThatItWasClosed) {
  Source& first = sources_[0];
  WireTicket ticket;
  Open(&first);
  Start(&first, 1, &ticket);
  ASSERT_TRUE(Await([&] { return memory_[0] == std::byte{1}; }));
  for (int i : {1, 2}) Open(&sources_[i]);
  EXPECT_TRUE(Await([&] { return !first.wire.wire->Health(first.endpoint).ok(); }));
  ExpectPutArrives(&sources_[1], 2);
  ExpectPutArrives(&sources_[2], 3);
}

}  // namespace
}  // namespace skein::engine
