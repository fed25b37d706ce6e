// Which network KV takes, by the flags --data-port, --data-host, --host and --require-encryption.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "engine/ucx/ucx_options.h"
#include "services/worker/process/worker_options.h"

namespace skein::services {

// The network device that has `address`. INVALID_ARGUMENT names the flag and the addresses that
// there are.
absl::StatusOr<std::string> DeviceWithAddress(const std::string& address);

// `offset` is added to --data-port, for those that need more than one.
absl::StatusOr<engine::UcxOptions> DataPlaneOf(const WorkerOptions& options, int offset);

// Connections of other workers that this process closed because its limit was reached. Logged at
// most once in 30 s. Any thread.
uint64_t DataConnectionsRefused();

// A failure to start the network, with the flag that it may be due to.
absl::Status AboutDataPort(const WorkerOptions& options, int offset, const absl::Status& status);

}  // namespace skein::services
