// skeinctl status: what the orchestrator knows of its instances.
#pragma once

#include <string>

#include "proto/orchestrator.pb.h"

namespace skein::services {

// argv[0] is "status". Exit code: 0; 1 when the orchestrator does not answer; 2 for wrong flags.
int StatusCommand(int argc, char** argv);

// Pure: a table for people, and one JSON object for programs.
std::string StatusTable(const v1::StatusResponse& status);
std::string StatusJson(const v1::StatusResponse& status);

}  // namespace skein::services
