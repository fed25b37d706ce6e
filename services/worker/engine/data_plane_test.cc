#include "services/worker/engine/data_plane.h"

#include "engine/transport/ucx/ucx_transport.h"
#include "gtest/gtest.h"

namespace skein::services {
namespace {

TEST(DataPlane, ListensWhereHostSays) {
  WorkerOptions options;
  EXPECT_EQ(DataPlaneOf(options, 0)->tcp_address, "127.0.0.1") << "the default";
  options.host = "127.0.0.2";
  EXPECT_EQ(DataPlaneOf(options, 0)->tcp_address, "127.0.0.2");
  EXPECT_EQ(DataPlaneOf(options, 0)->net_device, "lo");
  options.host = "localhost";
  EXPECT_EQ(DataPlaneOf(options, 0)->tcp_address, "127.0.0.1");
  options.host = "0.0.0.0";
  EXPECT_EQ(DataPlaneOf(options, 0)->tcp_address, "") << "all addresses";
  options.data_host = "127.0.0.3";
  EXPECT_EQ(DataPlaneOf(options, 0)->tcp_address, "127.0.0.3") << "it comes before --host";
  options.data_host = "192.0.2.1";
  EXPECT_FALSE(DataPlaneOf(options, 0).ok());
}

// An address that no process of this host has stands for another host.
TEST(DataPlane, WhereEncryptionIsRequiredKvStaysWithinTheHost) {
  WorkerOptions options;
  options.require_encryption = true;
  const auto plain = DataPlaneOf(options, 0);
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->tls, "self,shm") << "no network";
  EXPECT_EQ(plain->far_refused.rfind("--require-encryption: ", 0), 0u);
  const auto transport = engine::MakeUcxTransport(*plain, nullptr);
  EXPECT_TRUE(transport.ok()) << transport.status();
}

}  // namespace
}  // namespace skein::services
