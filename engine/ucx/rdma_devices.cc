#include "engine/ucx/rdma_devices.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace skein::engine {
namespace {

// Linux counts the ports of a device from 0 here, UCX from 1.
int PortOf(const std::filesystem::path& net_device) {
  std::ifstream file(net_device / "dev_port");
  int port = 0;
  return file >> port ? port + 1 : 1;
}

}  // namespace

std::vector<std::string> RdmaDevicesBehind(const std::string& net_devices, const std::string& sys) {
  std::vector<std::string> found;
  for (const auto name : absl::StrSplit(net_devices, ',', absl::SkipEmpty())) {
    const auto net = std::filesystem::path(sys) / "class/net" / std::string(name);
    std::error_code none;
    std::vector<std::string> here;
    for (const auto& rdma : std::filesystem::directory_iterator(net / "device/infiniband", none)) {
      here.push_back(absl::StrCat(rdma.path().filename().string(), ":", PortOf(net)));
    }
    std::sort(here.begin(), here.end());
    found.insert(found.end(), here.begin(), here.end());
  }
  return found;
}

}  // namespace skein::engine
