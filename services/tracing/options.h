// Flags of tracing, the same in every process: --trace-endpoint, --trace-ratio, --trace-slow-ms.
#pragma once

#include <cstdint>
#include <string>

#include "services/flags/flags.h"
#include "services/tracing/tracer.h"

namespace skein::services {

struct TracingOptions {
  // http://HOST:PORT of an OTLP/HTTP collector; kLocal: spans are only kept here, for
  // `skeinctl trace`; empty: tracing is off.
  std::string endpoint;
  double ratio = 0.1;
  int64_t slow_ms = 0;

  static constexpr char kLocal[] = "local";
  bool IsLocal() const { return endpoint == kLocal; }

  // Registers the flags, and the check of --trace-endpoint. The options stay where they are until
  // the flags are parsed.
  void Register(FlagSet* flags);
  TracerOptions tracer() const;
};

}  // namespace skein::services
