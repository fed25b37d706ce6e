#include "engine/transport/ucx_wire.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <utility>

#include "engine/host/process_watch.h"
#include "engine/transport/description.h"
#include "engine/transport/testing_target.h"
#include "engine/transport/ucx_address.h"
#include "engine/transport/ucx_context.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

struct AddressedWire {
  std::string address;
  std::unique_ptr<Wire> wire;
};

AddressedWire Make() {
  auto context = MakeUcxContext({.tls = "self,shm"});
  SKEIN_CHECK(context.ok());
  auto host = HostWire::Make();
  SKEIN_CHECK(host != nullptr);
  const std::string address = SealAddress({ThisProcess(), host->name(), context->worker_address});
  return {address, MakeUcxWire(*context, std::move(host), address, nullptr)};
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

}  // namespace
}  // namespace skein::engine
