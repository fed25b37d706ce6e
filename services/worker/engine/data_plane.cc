#include "services/worker/engine/data_plane.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <atomic>
#include <memory>

#include "absl/strings/str_cat.h"
#include "services/log/log.h"
#include "services/log/repeat_limit.h"

namespace skein::services {
namespace {

std::string TextOf(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address == nullptr) return "";
  if (address->sa_family == AF_INET) {
    const auto* ip = reinterpret_cast<const sockaddr_in*>(address);
    inet_ntop(AF_INET, &ip->sin_addr, text, sizeof text);
  } else if (address->sa_family == AF_INET6) {
    const auto* ip = reinterpret_cast<const sockaddr_in6*>(address);
    inet_ntop(AF_INET6, &ip->sin6_addr, text, sizeof text);
  }
  return text;
}

// Of IPv4, and not the wildcard.
bool IsOneAddress(const std::string& host) {
  in_addr ip{};
  return inet_pton(AF_INET, host.c_str(), &ip) == 1 && ip.s_addr != htonl(INADDR_ANY);
}

std::atomic<uint64_t> connections_refused{0};

void Refused(size_t limit) {
  const uint64_t refused = connections_refused.fetch_add(1) + 1;
  if (!AdmitRepeated("data connections")) return;
  LogWarning("data connection refused: connection limit reached",
             {{"limit", static_cast<int64_t>(limit)}, {"closed", refused}});
}

}  // namespace

uint64_t DataConnectionsRefused() { return connections_refused.load(); }

absl::StatusOr<std::string> DeviceWithAddress(const std::string& address) {
  // All of 127.0.0.0/8 is this one's.
  const std::string wanted = address.rfind("127.", 0) == 0 ? "127.0.0.1" : address;
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) return absl::UnavailableError("--data-host: no addresses are known");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> all(found, freeifaddrs);
  std::string known;
  for (const ifaddrs* one = found; one != nullptr; one = one->ifa_next) {
    const std::string text = TextOf(one->ifa_addr);
    if (text.empty()) continue;
    if (text == wanted) return std::string(one->ifa_name);
    absl::StrAppend(&known, known.empty() ? "" : ", ", text, " (", one->ifa_name, ")");
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--data-host: '", address, "' is not an address of this machine; known: ", known));
}

absl::StatusOr<engine::UcxOptions> DataPlaneOf(const WorkerOptions& options, int offset) {
  engine::UcxOptions out;
  if (options.require_encryption) {
    out.tls = "self,shm";
    out.far_refused =
        "--require-encryption: the peer is on another host, or its memory cannot be reached from "
        "here, and nothing encrypts KV between hosts";
    return out;
  }
  out.tcp_refused = Refused;
  if (options.data_port != 0) out.tcp_port = static_cast<int>(options.data_port) + offset;
  const std::string& given = options.data_host.empty() ? options.host : options.data_host;
  const std::string host = given == "localhost" ? "127.0.0.1" : given;
  if (options.data_host.empty() && !IsOneAddress(host)) return out;
  absl::StatusOr<std::string> device = DeviceWithAddress(host);
  if (!device.ok()) return device.status();
  out.net_device = *std::move(device);
  if (IsOneAddress(host)) out.tcp_address = host;
  return out;
}

absl::Status AboutDataPort(const WorkerOptions& options, int offset, const absl::Status& status) {
  if (status.ok() || options.data_port == 0) return status;
  return absl::Status(status.code(),
                      absl::StrCat("--data-port: with port ", options.data_port + offset,
                                   ", which may be in ", "use: ", std::string(status.message())));
}

}  // namespace skein::services
