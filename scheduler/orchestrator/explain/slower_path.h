// By what a handoff took longer than it had to: the reasons that are counted, and what is told of
// them to people.
#pragma once

#include <string>
#include <vector>

#include "scheduler/base/messages.h"
#include "scheduler/orchestrator/explain/explanation.h"

namespace skein::scheduler {

// None: no faster path is known, or the instance did not tell the path.
std::vector<Degraded> SlowerBy(const HandoffPath& path);

// Why no faster path was taken; "" if SlowerBy gives none. Hosts are those that the instances
// registered with; "": not known any more.
std::string WhySlower(const HandoffPath& path, const std::string& prefill_host,
                      const std::string& decode_host);

}  // namespace skein::scheduler
