// Which RDMA devices lie behind a network device. Internal to engine/ucx.
#pragma once

#include <string>
#include <vector>

namespace skein::engine {

// UCX's names, such as "mlx5_0:1", of the RDMA ports behind these network devices (several with
// commas between), in order. `sys` is where Linux shows its devices.
std::vector<std::string> RdmaDevicesBehind(const std::string& net_devices,
                                           const std::string& sys = "/sys");

}  // namespace skein::engine
