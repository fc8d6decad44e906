# Debian packages, by `cpack` in the build folder, after everything is built: one for each install component (see
# HierlockInstall.cmake). dpkg-shlibdeps finds out which libraries a program needs.
if(BUILD_SHARED_LIBS OR NOT TARGET hierlock_tool_cli)
  return()  # the packages are of the static library and the tool
endif()

set(HIERLOCK_MAINTAINER "The hierlock authors" CACHE STRING "Maintainer of the Debian packages: NAME <ADDRESS>")
mark_as_advanced(HIERLOCK_MAINTAINER)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME hierlock)
set(CPACK_PACKAGE_CONTACT "${HIERLOCK_MAINTAINER}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_RESOURCE_FILE_LICENSE "${PROJECT_SOURCE_DIR}/LICENSE")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_COMPONENTS_ALL tool dev)

set(same_version "hierlock (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_TOOL_PACKAGE_NAME hierlock)
set(CPACK_DEBIAN_TOOL_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_TOOL_PACKAGE_SUGGESTS "hierlock-mysql, hierlock-valkey, hierlock-lab")
set(CPACK_COMPONENT_TOOL_DESCRIPTION "hierarchical, named and counted locks: the command-line tool. hierlock exec runs \
a command while it holds locks; hierlock status shows who holds what and who waits for whom. Locks between the processes \
of one machine need no server.")

set(CPACK_DEBIAN_DEV_PACKAGE_NAME libhierlock-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "libstdc++-12-dev | libstdc++-dev")
set(CPACK_DEBIAN_DEV_PACKAGE_SUGGESTS "hierlock-mysql, hierlock-valkey, hierlock-lab, libsoci-dev")
set(CPACK_COMPONENT_DEV_DESCRIPTION "hierarchical, named and counted locks: C++20 library and headers, for CMake \
(find_package) and pkg-config.")

# hierlock_package(<component> <development package of its client> <what it is>)
function(hierlock_package component client what)
  if(NOT TARGET hierlock_tool_${component})
    return()
  endif()
  string(TOUPPER ${component} upper)
  list(APPEND CPACK_COMPONENTS_ALL ${component})
  set(CPACK_COMPONENTS_ALL ${CPACK_COMPONENTS_ALL} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME hierlock-${component} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION utils PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_DEPENDS "${same_version}" PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_SUGGESTS "libhierlock-dev (= ${PROJECT_VERSION}), ${client}" PARENT_SCOPE)
  set(CPACK_COMPONENT_${upper}_DESCRIPTION "${what}. The tool finds it when it is asked for it. The library of \
this component is here as well, for programs that use libhierlock-dev." PARENT_SCOPE)
endfunction()
hierlock_package(mysql libmariadb-dev "hierlock on MySQL and MariaDB")
hierlock_package(valkey "libhiredis-dev, libssl-dev" "hierlock on Valkey and Redis")
hierlock_package(lab "libmariadb-dev, libpq-dev, libsqlite3-dev" "hierlock's lab: plays scenarios of locks and transactions")

include(CPack)
