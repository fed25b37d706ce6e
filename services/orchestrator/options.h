// Flags of the orchestrator.
#pragma once

#include <cstdint>
#include <string>

#include "services/base/flags.h"

namespace skein::services {

struct OrchestratorOptions {
  std::string host = "127.0.0.1";
  int64_t port = 7100;
  std::string port_file;
  int64_t admin_port = 0;
  std::string admin_port_file;
  int64_t max_requests = 4096;
  double instance_lease_s = 3;
  double request_deadline_s = 600;
  int64_t inbox = 16384;
  std::string profile;
  std::string policy = "tetris";
  int64_t node_size = 8;
  std::string improvement_rate = "auto";

  void Register(FlagSet* flags) {
    flags->String(&host, "host", "address to listen on");
    flags->Int(&port, "port", "gRPC port; 0 takes a free one", 0, 65535);
    flags->String(&port_file, "port_file", "file to write the bound gRPC port to");
    flags->Int(&admin_port, "admin_port", "HTTP port of metrics and probes; 0 takes a free one", 0,
               65535);
    flags->String(&admin_port_file, "admin_port_file", "file to write the bound HTTP port to");
    flags->Int(&max_requests, "max_requests", "requests in the cluster at a time", 1, 1 << 20);
    flags->Double(&instance_lease_s, "instance_lease_s",
                  "an instance is dead when it was silent for this long", 0.1, 3600);
    flags->Double(&request_deadline_s, "request_deadline_s",
                  "longest life of a request that names no deadline", 0.1, 86400);
    flags->Int(&inbox, "inbox", "messages waiting for the core before new ones are refused", 1,
               1 << 20);
    flags->String(
        &profile, "profile",
        "latency profile of the prefill instances: a built-in name or a file; without it "
        "every prompt is computed by one instance. SIGHUP reads its tables anew: improvement "
        "rates and rolling");
    flags->String(&policy, "policy",
                  "how prompts are planned with a profile: tetris, single, rolling, greedy or "
                  "fixedN, as in skeinctl simulate; random, to find out what breaks");
    flags->Int(&node_size, "node-size", "prefill instances of a node, of those on one host", 1,
               1 << 16);
    flags->String(&improvement_rate, "improvement-rate",
                  "of tetris and single: auto (the profile's table by load, or 0.25), or a "
                  "fraction in [0, 1)");
  }
};

}  // namespace skein::services
