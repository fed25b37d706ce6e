#include "services/store/etcd_range.h"

#include <memory>
#include <utility>

#include "third_party/interfaces/etcd/rpc.grpc.pb.h"

namespace skein::services {

std::string EtcdRangeEnd(std::string prefix) {
  while (!prefix.empty()) {
    const auto last = static_cast<unsigned char>(prefix.back());
    if (last < 0xff) {
      prefix.back() = static_cast<char>(last + 1);
      return prefix;
    }
    prefix.pop_back();
  }
  return std::string(1, '\0');
}

absl::StatusOr<StoreSnapshot> ReadEtcdRange(EtcdCalls* calls, const std::string& key,
                                            const std::string& end, int64_t timeout_us) {
  etcdserverpb::RangeRequest request;
  request.set_key(key.empty() ? std::string(1, '\0') : key);
  request.set_range_end(end);
  etcdserverpb::RangeResponse response;
  const auto range = [&](const auto& channel, auto* context) {
    response.Clear();
    return etcdserverpb::KV::NewStub(channel)->Range(context, request, &response);
  };
  if (absl::Status status = calls->Try(timeout_us, range); !status.ok()) return status;
  StoreSnapshot snapshot;
  snapshot.revision = response.header().revision();
  snapshot.entries.reserve(response.kvs_size());
  for (auto& kv : *response.mutable_kvs()) {
    snapshot.entries.push_back({std::move(*kv.mutable_key()), std::move(*kv.mutable_value()),
                                kv.mod_revision(), static_cast<uint64_t>(kv.lease())});
  }
  return snapshot;
}

}  // namespace skein::services
