# SOCI (Debian: libsoci-dev), which brings no CMake config. Sets SOCI_FOUND, SOCI_INCLUDE_DIRS and SOCI_LIBRARIES, the
# latter by name, so that what is installed names no folder of this machine. Found means: the core, the backends mysql,
# postgresql and sqlite3, and the headers of the three client libraries, which SOCI's own headers include. The adapter of
# rows also asks sqlite3 and pq themselves.
find_path(SOCI_INCLUDE soci/soci.h)
find_path(SOCI_MYSQL_INCLUDE mysql.h PATH_SUFFIXES mariadb mysql)
find_path(SOCI_PQ_INCLUDE libpq-fe.h PATH_SUFFIXES postgresql)
find_path(SOCI_SQLITE_INCLUDE sqlite3.h)
set(SOCI_LIBRARIES soci_mysql soci_postgresql soci_sqlite3 soci_core sqlite3 pq)
set(soci_parts SOCI_INCLUDE SOCI_MYSQL_INCLUDE SOCI_PQ_INCLUDE SOCI_SQLITE_INCLUDE)
foreach(library IN LISTS SOCI_LIBRARIES)
  find_library(SOCI_LIBRARY_${library} ${library})
  list(APPEND soci_parts SOCI_LIBRARY_${library})
endforeach()
mark_as_advanced(${soci_parts})
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(SOCI REQUIRED_VARS ${soci_parts})
set(SOCI_INCLUDE_DIRS ${SOCI_INCLUDE} ${SOCI_MYSQL_INCLUDE} ${SOCI_PQ_INCLUDE} ${SOCI_SQLITE_INCLUDE})
