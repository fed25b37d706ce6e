// Flags of tracing, the same in every process: --trace-endpoint, --trace-ratio, --trace-slow-ms.
#pragma once

#include <cstdint>
#include <string>

#include "services/flags/flags.h"
#include "services/tracing/tracer.h"

namespace skein::services {

struct TracingOptions {
  std::string endpoint;  // http://HOST:PORT of an OTLP/HTTP collector; empty: tracing is off
  double ratio = 0.1;
  int64_t slow_ms = 0;

  // Registers the flags, and the check of --trace-endpoint. The options stay where they are until
  // the flags are parsed.
  void Register(FlagSet* flags);
  TracerOptions tracer() const;
};

}  // namespace skein::services
