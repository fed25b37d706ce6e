#include "engine/ucx/rdma_devices.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "engine/ucx/ucx_context.h"

namespace skein::engine {
namespace {

using Names = std::vector<std::string>;

// Linux's folders of eth0, which has no RDMA, of eth1 (RoCE) and of ib0, the second port of mlx5_3.
class RdmaDevicesTest : public testing::Test {
 protected:
  RdmaDevicesTest() {
    std::filesystem::create_directories(Net("eth0") / "device");
    std::filesystem::create_directories(Net("eth1") / "device/infiniband/mlx5_0");
    std::filesystem::create_directories(Net("ib0") / "device/infiniband/mlx5_3");
    std::ofstream(Net("eth1") / "dev_port") << "0\n";
    std::ofstream(Net("ib0") / "dev_port") << "1\n";
  }
  std::filesystem::path Net(const std::string& name) const {
    return std::filesystem::path(sys_) / "class/net" / name;
  }

  const std::string sys_ = std::string(std::getenv("TEST_TMPDIR")) + "/sys";
};

TEST_F(RdmaDevicesTest, AreThoseBehindTheNetworkDevice) {
  EXPECT_EQ(RdmaDevicesBehind("eth1", sys_), Names{"mlx5_0:1"});
  EXPECT_EQ(RdmaDevicesBehind("ib0", sys_), Names{"mlx5_3:2"});
  EXPECT_EQ(RdmaDevicesBehind("ib0,eth0,eth1", sys_), (Names{"mlx5_3:2", "mlx5_0:1"}));
  EXPECT_EQ(RdmaDevicesBehind("eth0", sys_), Names{});
  EXPECT_EQ(RdmaDevicesBehind("lo", sys_), Names{});
}

TEST(WithoutRdmaTest, LeavesWhatStaysOnTheHost) {
  EXPECT_EQ(WithoutRdma("all"), "^ib");
  EXPECT_EQ(WithoutRdma("^tcp"), "^tcp,ib");
  EXPECT_EQ(WithoutRdma("self,shm,rc,ud_verbs,dc_x,cuda_copy"), "self,shm,cuda_copy");
  EXPECT_EQ(WithoutRdma("rc,ib"), "self");
}

// UCX takes them, and finds nothing beyond the host.
TEST(WithoutRdmaTest, UcxStartsWithoutIt) {
  for (const char* const tls : {"", "self,shm", "self,shm,rc"}) {
    UcxOptions options;
    options.tls = tls;
    options.net_device = "lo";
    const auto context = MakeUcxContext(options);
    ASSERT_TRUE(context.ok()) << tls << ": " << context.status();
    EXPECT_FALSE(context->fabric);
    Destroy(*context);
  }
}

}  // namespace
}  // namespace skein::engine
