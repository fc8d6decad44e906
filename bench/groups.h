// Groups: what measures the cases, one function for each group of the table in cases.cc.
#pragma once

#include "session.h"

namespace bench::groups {

void pair(Session& session);
void instructions(Session& session);
void hot(Session& session);
void disjoint2(Session& session);
void hot2(Session& session);
void million(Session& session);
void alone(Session& session);
void handover(Session& session);
void uuid(Session& session);
void string(Session& session);
void named(Session& session);
void slots(Session& session);
void contended(Session& session);
void shm(Session& session);
void shm_disjoint2(Session& session);
void shm_hot2(Session& session);
void shm_handover(Session& session);
void exec(Session& session);
void waiting(Session& session);
void drain(Session& session);
void entangled(Session& session);
void mysql(Session& session);
void mariadb(Session& session);
void mysql_herd(Session& session);
void mariadb_herd(Session& session);
void mysql_waiting(Session& session);
void mariadb_waiting(Session& session);
void mysql_notices(Session& session);
void mariadb_notices(Session& session);
void mysql_held(Session& session);
void mariadb_held(Session& session);
void mysql_hot(Session& session);
void mariadb_hot(Session& session);
void mysql_far(Session& session);
void mariadb_far(Session& session);
void mysql_names(Session& session);
void mariadb_names(Session& session);
void mysql_names_hot(Session& session);
void mariadb_names_hot(Session& session);
void mysql_names_held(Session& session);
void mariadb_names_held(Session& session);
void valkey(Session& session);
void valkey_hot(Session& session);
void valkey_held(Session& session);
void nested(Session& session);
void rows(Session& session);
void lab(Session& session);
void lab_suite(Session& session);
void provision_mysql(Session& session);
void provision_mariadb(Session& session);

}  // namespace bench::groups
