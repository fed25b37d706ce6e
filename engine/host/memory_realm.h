// Tells which processes may open one another's device memory. Internal to the engine.
#pragma once

#include <string>

namespace skein::engine {

// Equal for processes of one host since its start, one user, and the same pid, IPC and user
// namespaces: what CUDA's IPC asks for, or more (of containers it asks for a shared pid or IPC
// namespace, depending on the driver; users must not differ). Empty if /proc does not tell.
std::string MemoryRealm();

}  // namespace skein::engine
