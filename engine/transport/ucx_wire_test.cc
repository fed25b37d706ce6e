#include "engine/transport/ucx_wire.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <utility>

#include "engine/base/check.h"
#include "engine/host/process_watch.h"
#include "engine/transport/description.h"
#include "engine/transport/testing_target.h"
#include "engine/transport/ucx_address.h"
#include "engine/transport/ucx_context.h"

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

}  // namespace
}  // namespace skein::engine
