// EtcdWatch: a watch of a prefix. etcd's Watch stream says when to read the prefix again; what it
// holds is always read, and every half second also without being told. So no event can be missed:
// not between two streams, not in a member that hangs or was cut off from the others.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "grpcpp/grpcpp.h"
#include "services/store/cluster_store.h"
#include "services/store/etcd_calls.h"

namespace skein::services {

class EtcdWatch final : public StoreWatch {
 public:
  // `calls` outlives this.
  EtcdWatch(EtcdCalls* calls, std::string prefix, ClusterStore::Changed changed);
  ~EtcdWatch() override;

 private:
  void Listen();
  void ListenOnce(size_t endpoint);
  void Read();
  void Notify();

  EtcdCalls* const calls_;
  const std::string prefix_;
  const ClusterStore::Changed changed_;
  std::mutex mu_;
  std::condition_variable wake_;
  bool stopping_ = false;
  bool notified_ = false;
  grpc::ClientContext* stream_ = nullptr;  // while it is open
  std::thread listener_;                   // last: these use the others
  std::thread reader_;
};

}  // namespace skein::services
