#include "services/skeinctl/cluster/drain.h"

#include "gtest/gtest.h"

namespace skein::services {
namespace {

v1::StatusResponse Example() {
  v1::StatusResponse status;
  for (uint64_t i = 1; i <= 2; ++i) {
    v1::InstanceStatus* instance = status.add_instances();
    instance->set_instance(100 + i);
    instance->mutable_registration()->set_role(v1::ROLE_DECODE);
    instance->mutable_registration()->set_host("h");
    instance->mutable_registration()->set_pid(static_cast<int64_t>(i));
    instance->mutable_registration()->set_endpoint("w:" + std::to_string(i));
    instance->mutable_load()->set_running(i);
    instance->mutable_load()->mutable_blocks()->set_held(10 * i);
  }
  v1::RouterStatus* router = status.add_routers();
  router->mutable_identity()->set_router(7);
  router->mutable_identity()->set_endpoint("r:80");
  router->mutable_load()->set_running(4);
  return status;
}

const ProcessNames kNames({.processes = {{"decode-1", "decode", 2, "", ""}}}, "h");

TEST(Drain, ATargetIsFoundByIdNameOrEndpoint) {
  for (const char* name : {"102", "decode-1", "w:2"}) {
    const auto target = FindTarget(Example(), kNames, name);
    ASSERT_TRUE(target.ok()) << target.status();
    EXPECT_EQ(target->instance, 102u) << name;
    EXPECT_EQ(target->label, "decode-1 (decode instance 102)");
  }
  for (const char* name : {"router", "r:80"}) {
    const auto target = FindTarget(Example(), kNames, name);
    ASSERT_TRUE(target.ok()) << target.status();
    EXPECT_EQ(target->router, 7u) << name;
  }
  v1::StatusResponse two = Example();
  two.add_routers()->mutable_identity()->set_endpoint("r:81");
  EXPECT_FALSE(FindTarget(two, kNames, "router").ok());
  const absl::Status unknown = FindTarget(Example(), kNames, "decode-7").status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(unknown.message().find("101, decode-1, r:80"), absl::string_view::npos) << unknown;
  EXPECT_FALSE(FindTarget(Example(), kNames, "").ok());
}

TEST(Drain, ProgressSaysWhatIsLeftAndWhenItIsSafe) {
  v1::StatusResponse status = Example();
  const DrainTarget target = *FindTarget(status, kNames, "102");
  v1::InstanceStatus* instance = status.mutable_instances(1);
  instance->mutable_load()->set_draining(true);
  EXPECT_EQ(TextOf(target, ProgressOf(status, target)),
            "decode-1 (decode instance 102) drains: 2 running, 0 waiting, 20 KV blocks held");
  instance->set_drained(true);
  EXPECT_EQ(TextOf(target, ProgressOf(status, target)),
            "decode-1 (decode instance 102) is drained: safe to stop");
  status.mutable_instances()->DeleteSubrange(1, 1);
  v1::GoneStatus* gone = status.add_gone();
  gone->set_instance(102);
  gone->set_why("has left");
  const DrainProgress progress = ProgressOf(status, target);
  EXPECT_FALSE(progress.present);
  EXPECT_EQ(progress.gone_why, "has left");
}

TEST(Drain, ARoutersRequestsAreItsProgress) {
  const DrainTarget target = *FindTarget(Example(), kNames, "router");
  EXPECT_EQ(TextOf(target, ProgressOf(Example(), target)),
            "router r:80 serves: 4 running, 0 waiting");
}

}  // namespace
}  // namespace skein::services
