// For tests: how a test names the options of a transport in one word.
#pragma once

#include <string>
#include <string_view>

#include "engine/ucx/ucx_options.h"

namespace skein::engine {

// `tls` is a value of UCX_TLS. With "ucx:" before it UCX carries everything, without Skein's own
// wires.
inline UcxOptions TestingOptions(std::string_view tls) {
  constexpr std::string_view kByUcx = "ucx:";
  const bool by_ucx = tls.substr(0, kByUcx.size()) == kByUcx;
  return {.tls = std::string(by_ucx ? tls.substr(kByUcx.size()) : tls), .own_wires = !by_ucx};
}

}  // namespace skein::engine
